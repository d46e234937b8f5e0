"""Flags that SGLang renamed or dropped, by the parsers of recorded versions: a change lies between two of them."""

from __future__ import annotations

from llmgw_core.engine import Rename


def _gone(old: str, *new: str, by: str, last: str, note: str = "") -> Rename:
    return Rename(old, new, gone_from=by, source=f"SGLang's own parser, {last} and {by}", note=note)


_NOT_DECLARED = "no parser declares it: it works as an abbreviation only"

RENAMES = (
    Rename("--tp", ("--tp-size",), "", "0.4.6.post5 to 0.5.23", note=_NOT_DECLARED),
    Rename("--dp", ("--dp-size",), "", "0.4.6.post5 to 0.5.23", note=_NOT_DECLARED),
    _gone("--pp", "--pp-size", by="0.5.4", last="0.5.3", note="it is ambiguous"),
    _gone("--enable-ep-moe", "--ep-size", by="0.5.3", last="0.5.1", note="give it the size of --tp-size"),
    _gone("--enable-deepep-moe", "--moe-a2a-backend deepep", by="0.5.3", last="0.5.1"),
    _gone("--enable-flashinfer-cutlass-moe", "--moe-runner-backend flashinfer_cutlass", by="0.5.6", last="0.5.4"),
    _gone("--enable-flashinfer-cutedsl-moe", "--moe-runner-backend flashinfer_cutedsl", by="0.5.6", last="0.5.4"),
    _gone("--enable-flashinfer-trtllm-moe", "--moe-runner-backend flashinfer_trtllm", by="0.5.6", last="0.5.4"),
    _gone("--enable-triton-kernel-moe", "--moe-runner-backend triton_kernel", by="0.5.6", last="0.5.4"),
    _gone("--enable-flashinfer-mxfp4-moe", "--moe-runner-backend flashinfer_mxfp4", by="0.5.6", last="0.5.4"),
    _gone("--load-watch-interval", by="0.5.9", last="0.5.6"),
    _gone("--disaggregation-decode-tp", by="0.5.12", last="0.5.9"),
    _gone("--disaggregation-decode-dp", by="0.5.12", last="0.5.9"),
    _gone("--disaggregation-prefill-pp", by="0.5.12", last="0.5.9"),
    _gone("--hybrid-kvcache-ratio", "--swa-full-tokens-ratio", by="0.5.14", last="0.5.12"),
    _gone("--torchao-config", by="0.5.18", last="0.5.16"),
    _gone("--enable-expert-distribution-metrics", "--expert-balancedness-report-mode", by="0.5.18", last="0.5.16"),
    _gone("--stream-output", "--incremental-streaming-output", by="0.5.20", last="0.5.18"),
    _gone("--nsa-prefill-backend", "--dsa-prefill-backend", by="0.5.20", last="0.5.18"),
    _gone("--nsa-decode-backend", "--dsa-decode-backend", by="0.5.20", last="0.5.18"),
    _gone("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy", by="0.5.20", last="0.5.18"),
    _gone("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode", by="0.5.20", last="0.5.18", note="it is ambiguous"),
    _gone("--cuda-graph-bs", "--cuda-graph-bs-decode", by="0.5.20", last="0.5.18", note="it is ambiguous"),
    _gone("--prefill-round-robin-balance", by="0.5.20", last="0.5.18"),
    _gone("--collect-tokens-histogram", "--enable-metrics", by="0.5.20", last="0.5.18"),
)

"""Flags that vLLM renamed or dropped, by its own recorded help: a change lies between two recorded versions."""

from __future__ import annotations

from llmgw_core.engine import Rename


def _gone(old: str, *new: str, by: str, last: str, note: str = "") -> Rename:
    return Rename(old, new, gone_from=by, source=f"vllm serve --help of {last} and {by}", note=note)


RENAMES = (
    _gone(
        "--disable-log-requests",
        "--no-enable-log-requests",
        by="0.18.0",
        last="0.16.0",
        note="requests are not logged by default from 0.10.2; --enable-log-requests means the opposite",
    ),
    _gone("--num-scheduler-steps", by="0.10.2", last="0.9.2", note="multi-step scheduling is gone"),
    _gone("--multi-step-stream-outputs", by="0.10.2", last="0.9.2", note="multi-step scheduling is gone"),
    _gone("--use-v2-block-manager", by="0.10.2", last="0.9.2", note="it is the only one"),
    _gone("--device", by="0.10.2", last="0.9.2", note="the device follows from the platform"),
    _gone("--enable-reasoning", "--reasoning-parser", by="0.10.2", last="0.9.2", note="a parser implies it"),
    _gone("--enable-prompt-adapter", by="0.10.2", last="0.9.2"),
    _gone("--rope-scaling", "--hf-overrides", by="0.11.2", last="0.10.2", note="a JSON object: rope_parameters"),
    _gone("--rope-theta", "--hf-overrides", by="0.11.2", last="0.10.2", note="a JSON object: rope_parameters"),
    _gone("--max-seq-len-to-capture", "--max-cudagraph-capture-size", by="0.11.2", last="0.10.2"),
    _gone("--preemption-mode", by="0.11.2", last="0.10.2"),
    _gone("--scheduler-delay-factor", by="0.11.2", last="0.10.2"),
    _gone("--disable-async-output-proc", by="0.11.2", last="0.10.2"),
    _gone(
        "--guided-decoding-backend", "--structured-outputs-config", by="0.12.0", last="0.11.2", note="its key backend"
    ),
    _gone(
        "--guided-decoding-disable-fallback",
        "--structured-outputs-config",
        by="0.12.0",
        last="0.11.2",
        note="its key disable_fallback",
    ),
    _gone("--num-redundant-experts", "--eplb-config", by="0.12.0", last="0.11.2", note="its key num_redundant_experts"),
    _gone("--eplb-window-size", "--eplb-config", by="0.12.0", last="0.11.2", note="its key window_size"),
    _gone("--eplb-step-interval", "--eplb-config", by="0.12.0", last="0.11.2", note="its key step_interval"),
    _gone("--eplb-log-balancedness", "--eplb-config", by="0.12.0", last="0.11.2", note="its key log_balancedness"),
    _gone("--num-lookahead-slots", by="0.12.0", last="0.11.2"),
    _gone("--task", "--runner", "--convert", by="0.13.0", last="0.12.0"),
    _gone("--cuda-graph-sizes", "--cudagraph-capture-sizes", by="0.13.0", last="0.12.0"),
    _gone("--swap-space", by="0.18.0", last="0.16.0", note="swapping to the host's memory is gone"),
    _gone("--disable-frontend-multiprocessing", by="0.20.2", last="0.18.0"),
    _gone("--calculate-kv-scales", by="0.28.0", last="0.24.0"),
    _gone("--max-num-partial-prefills", by="0.28.0", last="0.24.0"),
    _gone("--max-long-partial-prefills", by="0.28.0", last="0.24.0"),
    _gone("--override-attention-dtype", by="0.28.0", last="0.24.0"),
    # Older than the recorded texts.
    Rename("--worker-use-ray", ("--distributed-executor-backend ray",), "0.7.0", "reports of users of 0.7.0"),
    Rename("--speculative-model", ("--speculative-config",), "0.9.2", "vLLM issue 19775", note="a JSON object"),
    Rename("--num-speculative-tokens", ("--speculative-config",), "0.9.2", "vLLM issue 19775", note="a JSON object"),
)

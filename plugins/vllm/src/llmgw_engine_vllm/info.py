"""What this plugin says about vLLM before anything is run."""

from __future__ import annotations

from llmgw_core.engine import ENGINE_API, EngineInfo, Program, Spelling
from llmgw_engine_vllm.renames import RENAMES

PROGRAM = "vllm"

IGNORED_FIELDS = {
    "settings.metrics": "vLLM always serves /metrics and has no flag for it",
    "slot.directory": "vLLM needs no file: its API key goes by environment",
}

INFO = EngineInfo(
    name="vllm",
    api=ENGINE_API,
    checked_versions=("0.9.2", "0.10.2", "0.11.2", "0.13.0", "0.20.2", "0.28.0", "0.32.0"),
    programs=(
        Program(
            PROGRAM,
            commands=(("vllm",),),
            # 0.32.0 and 0.33.0, dry runs: `--max_model_len`, `--flag=value`, `--compilation-config.mode 3`, `-O3` and
            # `--tensor-par 2` are accepted. The words without a flag are `serve` and the model.
            spelling=Spelling(underscore_is_dash=True, dotted=True, abbreviates=True, attached=True, positionals=2),
        ),
    ),
    renames=RENAMES,
    surfaces="llmgw_engine_vllm.surfaces",
    # argparse takes the last one of a repeated flag: these would change what is served, or where.
    own_flags=(
        "--host",
        "--port",
        "--uds",
        "--headless",
        "--nnodes",
        "-n",
        "--node-rank",
        "-r",
        "--master-addr",
        "--master-port",
        "--data-parallel-address",
        "-dpa",
        "--data-parallel-rpc-port",
        "-dpp",
        "--data-parallel-start-rank",
        "-dpr",
        "--model",
        "--served-model-name",
    ),
    ending_flags=("-h", "--help"),
    ignored_fields=IGNORED_FIELDS,
)

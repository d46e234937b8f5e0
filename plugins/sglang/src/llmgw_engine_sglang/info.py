"""What this plugin says about SGLang before anything is run."""

from __future__ import annotations

from llmgw_core.engine import ENGINE_API, EngineInfo, Program, Spelling
from llmgw_engine_sglang.renames import RENAMES

PROGRAM = "sglang"

INFO = EngineInfo(
    name="sglang",
    api=ENGINE_API,
    checked_versions=("0.4.6.post5", "0.5.3", "0.5.9", "0.5.14", "0.5.18", "0.5.23"),
    programs=(
        Program(
            PROGRAM,
            # The module is there in every version, the console script from 0.5.6 on.
            commands=(("python3", "-m", "sglang.launch_server"), ("sglang",)),
            # 0.5.23: `_` is not `-`; an unambiguous beginning is accepted. The word without a flag is `serve`.
            spelling=Spelling(abbreviates=True, positionals=1),
        ),
    ),
    renames=RENAMES,
    surfaces="llmgw_engine_sglang.surfaces",
    # argparse takes the last one of a repeated flag: these would change what is served, or where.
    own_flags=(
        "--host",
        "--port",
        "--nnodes",
        "--node-rank",
        "--dist-init-addr",
        "--nccl-init-addr",
        "--model-path",
        "--model",
        "--served-model-name",
    ),
    ending_flags=("-h", "--help"),
)

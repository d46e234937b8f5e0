"""What this plugin says about the simulated engine before anything is run."""

from __future__ import annotations

from llmgw_core.engine import ENGINE_API, EngineInfo, Program

PROGRAM = "llmgw-sim"

_NO_WEIGHTS = "the sim has no weights"
_NO_GPU = "the sim uses no GPU memory"
_SAME_WORDS = "the sim answers every prompt with words of its own"

INFO = EngineInfo(
    name="sim",
    api=ENGINE_API,
    checked_versions=("0.1.0",),
    programs=(Program(PROGRAM, commands=((PROGRAM,),)),),
    # argparse takes the last one of a repeated flag: these would change what is served, or where.
    own_flags=("--host", "--port", "--nnodes", "--node-rank", "--dist-init-addr", "--model", "--served-model-name"),
    ending_flags=("-h", "--help", "--version"),
    ignored_fields={
        "slot.directory": "the sim writes no files",
        "slot.address": "the shards meet at the rendezvous",
        "settings.gpu_memory_fraction": _NO_GPU,
        "settings.kv_cache_dtype": _NO_GPU,
        "settings.prefix_caching": _NO_GPU,
        "settings.dtype": _NO_WEIGHTS,
        "settings.quantization": _NO_WEIGHTS,
        "settings.trust_remote_code": _NO_WEIGHTS,
        "settings.chat_template": _SAME_WORDS,
        "settings.tool_call_parser": _SAME_WORDS,
        "settings.reasoning_parser": _SAME_WORDS,
        "settings.speculative": _SAME_WORDS,
    },
)

"""Flags that engines renamed, dropped or changed, as people met them: the right answer for each, on recorded flags.

The case numbers are those of the reports that the answers come from.
"""

from functools import cache

import pytest

from llmgw_core.checking import NamedProfile, check_engine, read_recorded
from llmgw_core.engines import Engines
from llmgw_core.model.catalog import Profile
from llmgw_core.plan.engine_check import FlagReport
from llmgw_core.plugins import load_engines

JSON = '{"rope_type": "yarn", "factor": 4.0, "note": "a=b \'c\'"}'


@cache
def engines() -> Engines:
    return load_engines({"vllm", "sglang", "llamacpp"})


def judged(engine: str, version: str, *args: str) -> list[FlagReport]:
    """What comes out for the extra arguments of a profile."""
    material = read_recorded(engines().info(engine), version)
    profile = NamedProfile("mine", Profile(engine=engine, extra_args=args))
    report = check_engine(engines(), engine, material, [profile], widest=False)
    return [flag for flag in report.flags if flag.origin == "mine"]


CASES = [
    # case, engine, version, arguments, flag, verdict, suggested or said
    (
        "A01",
        "vllm",
        "0.20.2",
        ["--disable-log-requests"],
        "--disable-log-requests",
        "not documented",
        "--no-enable-log-requests",
    ),
    ("A01", "vllm", "0.10.2", ["--disable-log-requests"], "--disable-log-requests", "deprecated", ""),
    ("A04", "vllm", "0.11.2", [f"--rope-scaling={JSON}"], "--rope-scaling", "not documented", "--hf-overrides"),
    ("A04", "vllm", "0.9.2", [f"--rope-scaling={JSON}"], "--rope-scaling", "accepted", ""),
    (
        "A06",
        "vllm",
        "0.32.0",
        ["--speculative-model", "D"],
        "--speculative-model",
        "not documented",
        "--speculative-config",
    ),
    ("A07", "vllm", "0.32.0", ["--enable-reasoning"], "--enable-reasoning", "not documented", "--reasoning-parser"),
    ("A07", "sglang", "0.5.23", ["--enable-reasoning"], "--enable-reasoning", "not documented", ""),
    (
        "A13",
        "vllm",
        "0.10.2",
        ["--all2all-backend", "pplx"],
        "--all2all-backend",
        "not documented",
        "recorded in 0.11.2 to 0.32.0",
    ),
    ("A15", "sglang", "0.5.23", ["--enable_metrics"], "--enable_metrics", "not documented", "--enable-metrics"),
    ("A15", "vllm", "0.32.0", ["--max_model_len", "8"], "--max_model_len", "accepted", ""),
    ("A17", "sglang", "0.5.9", ["--enable-ep-moe"], "--enable-ep-moe", "not documented", "--ep-size"),
    (
        "A18",
        "sglang",
        "0.5.9",
        ["--dsa-prefill-backend", "x"],
        "--dsa-prefill-backend",
        "not documented",
        "--nsa-prefill-backend",
    ),
    ("A21", "llamacpp", "b10991", ["-fa", "--main-gpu", "0"], "-fa", "wrong arity", "--main-gpu"),
    ("A21", "llamacpp", "b10991", ["--flash-attn"], "--flash-attn", "wrong arity", "one value"),
    ("A22", "llamacpp", "b10991", ["--draft-max", "4"], "--draft-max", "removed", "--spec-draft-n-max"),
    ("A22", "llamacpp", "b10991", ["--draft-min", "4"], "--draft-min", "removed", "--spec-draft-n-min"),
    ("A23", "llamacpp", "b10991", ["-dio"], "-dio", "not documented", "--load-mode dio"),
    ("A23", "llamacpp", "b10991", ["--no-ui"], "--no-ui", "accepted", ""),
    ("A25", "llamacpp", "b10991", ["-cpent", "4"], "-cpent", "not documented", ""),
    ("A27", "llamacpp", "b10991", ["--draft-model", "d"], "--draft-model", "not documented", "--spec-draft-model"),
    ("A28", "llamacpp", "b10991", ["--log-colors", "--metrics"], "--log-colors", "wrong arity", "--metrics"),
    ("A33", "llamacpp", "b10991", ["--spec-type", "mtp"], "--spec-type", "bad choice", "draft-mtp"),
    ("A36", "vllm", "0.32.0", ["--speculative_config", "{}"], "--speculative_config", "accepted", ""),
    ("A39", "llamacpp", "b10991", ["--threads-http", "8"], "--threads-http", "accepted", ""),
    (
        "A45",
        "vllm",
        "0.9.2",
        ["--worker-use-ray"],
        "--worker-use-ray",
        "not documented",
        "--distributed-executor-backend ray",
    ),
    (
        "A52",
        "sglang",
        "0.5.14",
        ["--disaggregation-decode-tp", "2"],
        "--disaggregation-decode-tp",
        "not documented",
        "",
    ),
    ("B19", "sglang", "0.5.3", ["--enable-ep-moe"], "--enable-ep-moe", "deprecated", "--ep-size"),
    ("B25", "llamacpp", "b10991", ["--no-mmap"], "--no-mmap", "not documented", "--load-mode none"),
]


@pytest.mark.parametrize(("case", "engine", "version", "args", "flag", "verdict", "said"), CASES)
def test_reported_flags(
    case: str, engine: str, version: str, args: list[str], flag: str, verdict: str, said: str
) -> None:
    row = next(row for row in judged(engine, version, *args) if row.flag == flag)
    assert row.verdict.value == verdict
    assert said in f"{row.detail} {' '.join(row.suggestions)}"


def test_a06_only_the_old_flags_are_reported_and_no_prefix_counts() -> None:
    rows = judged("vllm", "0.32.0", "--speculative-model", "D", "--num-speculative-tokens", "5", "--spec-model", "D")
    assert {row.flag: row.verdict.value for row in rows} == {
        "--speculative-model": "not documented",
        "--num-speculative-tokens": "not documented",
        "--spec-model": "accepted",
    }


def test_a07_the_surviving_flag_and_its_value_are_fine() -> None:
    rows = judged("vllm", "0.32.0", "--enable-reasoning", "--reasoning-parser", "deepseek_r1")
    assert {row.flag: row.verdict.passes for row in rows} == {"--enable-reasoning": False, "--reasoning-parser": True}


@pytest.mark.parametrize("args", [["--no-enable-chunked-prefill"], ["--enable-chunked-prefill"]])
def test_a09_both_halves_of_a_pair_on_one_line_are_known(args: list[str]) -> None:
    assert judged("vllm", "0.32.0", *args)[0].verdict.passes


def test_a20_a_name_is_judged_and_not_what_the_engine_later_thinks_of_its_value() -> None:
    assert judged("sglang", "0.5.23", "--moe-dense-tp-size", "4")[0].verdict.passes


@pytest.mark.parametrize(
    ("engine", "version", "flag"),
    [
        ("vllm", "0.32.0", "--api"),
        ("vllm", "0.32.0", "-port"),
        ("llamacpp", "b10991", "-n-gpu-layers"),
        ("llamacpp", "b10991", "--mlock"),  # B11: a bullet of --load-mode
        ("llamacpp", "b10991", "-mlock"),
        ("llamacpp", "b10991", "--np"),
        ("llamacpp", "b10991", "--cpu-rang"),
    ],
)
def test_only_exact_names_count(engine: str, version: str, flag: str) -> None:
    assert not judged(engine, version, flag, "1")[0].verdict.passes

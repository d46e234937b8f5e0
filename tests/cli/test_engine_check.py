"""The command as an operator runs it: real processes, exit codes, JSON."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.testing import recorded_directory, recorded_help

LLMGW = Path(sys.executable).with_name("llmgw")
TIMEOUT_S = 60


def llmgw(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LLMGW, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environ},
    )


def engine_check(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return llmgw("ctl", "engine-check", *arguments, stdin=stdin, **environ)


def report(*arguments: str, stdin: str = "") -> tuple[int, Any]:
    ended = engine_check("--json", *arguments, stdin=stdin)
    assert not ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def verdicts(found: Any) -> dict[str, str]:
    return {flag["flag"]: flag["verdict"] for flag in found["flags"]}


def refused(found: Any) -> dict[str, str]:
    return {flag: verdict for flag, verdict in verdicts(found).items() if verdict not in ("accepted", "deprecated")}


def recorded(name: str) -> str:
    """`@FILE` of a recorded help text; skips the test where it is absent."""
    recorded_help(name)
    return f"@{recorded_directory() / 'help' / name}"


# on the given texts


def test_b10991_accepts_every_flag_of_the_widest_command() -> None:
    code, found = report("llamacpp", "--help-output", recorded("llamacpp-b10991.help.txt"))
    assert (code, found["outcome"]) == (0, "accepted")
    assert {"--model", "--port", "--rpc", "--ctx-size", "--parallel"} <= set(verdicts(found))
    assert set(verdicts(found).values()) == {"accepted"}


def test_its_first_400_lines_look_cut_short_and_no_flag_is_called_missing() -> None:
    text = "".join(recorded_help("llamacpp-b10991.help.txt").splitlines(keepends=True)[:400])
    code, found = report("llamacpp", "--help-output", "-", stdin=text)
    assert (code, found["outcome"]) == (2, "unchecked")
    assert "looks cut short" in found["reason"]
    assert "not documented" not in verdicts(found).values()


def test_a_longer_name_is_not_the_flag() -> None:
    text = recorded_help("llamacpp-b10991.help.txt").replace("\n--port PORT ", "\n--port-range PORT ")
    code, found = report("llamacpp", "--help-output", "-", stdin=text)
    assert (code, refused(found)) == (1, {"--port": "not documented"})
    assert found["flags"][3]["suggestions"][0] == "--port-range"


@pytest.mark.parametrize(
    ("engine", "text", "extra", "flag", "verdict", "detail"),
    [
        ("llamacpp", "llamacpp-b10991", ["--draft-max", "4"], "--draft-max", "removed", "--spec-draft-n-max"),
        ("llamacpp", "llamacpp-b10991", ["-fa", "--main-gpu", "0"], "-fa", "wrong arity", "swallow"),
        ("llamacpp", "llamacpp-b10991", ["-fa"], "-fa", "wrong arity", "given none"),
        ("sglang", "sglang-0.5.23", ["--pp", "2"], "--pp", "abbreviation only", "ambiguous"),
        ("sglang", "sglang-0.5.23", ["--tp", "8"], "--tp", "abbreviation only", "--tp-size"),
    ],
)
def test_a_profiles_own_arguments(
    tmp_path: Path, engine: str, text: str, extra: list[str], flag: str, verdict: str, detail: str
) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text(f'[profiles.mine]\nengine = "{engine}"\nextra_args = {json.dumps(extra)}\n')
    code, found = report(engine, "--help-output", recorded(f"{text}.help.txt"), "--catalog", str(catalog))
    (row,) = [row for row in found["flags"] if row["verdict"] not in ("accepted", "deprecated")]
    assert code == 1
    assert (row["flag"], row["verdict"], row["origin"]) == (flag, verdict, "mine")
    assert detail in f"{row['detail']} {row['suggestions']}"


def test_groups_only_is_the_wrong_level_of_help() -> None:
    code, found = report("vllm", "--help-output", recorded("vllm-0.32.0.groups-only.txt"))
    assert (code, found["outcome"], found["flags"]) == (2, "unchecked", [])
    assert "wrong level of help" in found["reason"]
    assert "--help=all" in found["reason"]


def test_vllm_0_9_2_lacks_the_multi_node_flags_and_nothing_else() -> None:
    code, found = report("vllm", "--help-output", recorded("vllm-0.9.2.help.txt"))
    multi_node = ("--nnodes", "--node-rank", "--master-addr", "--master-port")
    assert (code, refused(found)) == (1, dict.fromkeys(multi_node, "not documented"))
    details = {flag["detail"] for flag in found["flags"] if flag["verdict"] == "not documented"}
    assert all("recorded in 0.11.2 to 0.32.0" in detail for detail in details)


# without recordings


def test_json_says_what_was_examined_and_how() -> None:
    code, found = report("llamacpp", "--engine-version", "b10991")
    assert code == 0
    assert list(found)[:8] == [
        "engine", "executable", "engine_version", "source", "outcome", "reason", "warnings", "flags",
    ]  # fmt: skip
    assert (found["engine"], found["engine_version"]) == ("llamacpp", "b10991")
    assert found["source"] == "recorded flags of llama-server b10991"
    assert set(found["flags"][0]) == {"flag", "role", "origin", "verdict", "detail", "suggestions"}
    assert {flag["role"] for flag in found["flags"]} == {"head", "worker"}


@pytest.mark.parametrize("given", ["", "   \n"])
def test_an_empty_text_is_no_missing_flags(given: str) -> None:
    code, found = report("vllm", "--help-output", given)
    assert (code, found["outcome"], found["flags"]) == (2, "unchecked", [])


def test_an_engine_that_is_not_there_could_not_be_checked() -> None:
    ended = engine_check("llamacpp", PATH="/nonexistent")
    assert ended.returncode == 2
    assert "engine not found" in ended.stdout
    assert "--executable" in ended.stdout


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "echo 'RuntimeError: no such platform' >&2; exit 1",
            "help crashed: exit code 1: RuntimeError: no such platform",
        ),
        ("kill -SEGV $$", "help crashed: signal 11"),
        ("true", "help printed nothing"),
        ("sleep 100", "help timed out"),
    ],
)
def test_an_engine_whose_help_fails_could_not_be_checked(tmp_path: Path, body: str, said: str) -> None:
    executable = script(tmp_path / "llama-server", body)
    within_s = "1" if "timed out" in said else str(TIMEOUT_S)
    ended = engine_check("llamacpp", "--executable", executable, "--timeout", within_s)
    assert ended.returncode == 2
    assert said in ended.stdout
    assert "not documented" not in ended.stdout


def test_a_file_that_is_no_program_could_not_be_checked(tmp_path: Path) -> None:
    executable = tmp_path / "llama-server"
    executable.write_text("no program\n")
    executable.chmod(0o755)
    ended = engine_check("llamacpp", "--executable", str(executable))
    assert ended.returncode == 2
    assert "cannot be started: Exec format error" in ended.stdout


def test_it_names_the_file_behind_a_link(tmp_path: Path) -> None:
    real = script(tmp_path / "real", "exit 1")
    (tmp_path / "llama-server").symlink_to(real)
    _, found = report("llamacpp", "--executable", str(tmp_path / "llama-server"))
    assert found["executable"] == os.path.realpath(real)


def test_all_versions_is_a_table_of_who_accepts_a_profile(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text('[profiles.mine]\nengine = "vllm"\nextra_args = ["--rope-theta", "1", "--task", "embed"]\n')
    ended = engine_check("vllm", "--all-versions", "--catalog", str(catalog))
    rows = [line.split(maxsplit=2) for line in ended.stdout.splitlines()]
    assert ended.returncode == 1
    assert rows[1:] == [
        ["0.9.2", "accepted"],
        ["0.10.2", "accepted"],
        ["0.11.2", "findings", "--rope-theta (not documented, mine)"],
        ["0.13.0", "findings", "--rope-theta (not documented, mine)"],
        ["0.20.2", "findings", "--rope-theta (not documented, mine)"],
        ["0.28.0", "findings", "--rope-theta (not documented, mine)"],
        ["0.32.0", "findings", "--rope-theta (not documented, mine)"],
    ]


def test_an_impossible_profile_is_a_finding_with_the_numbers(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text('[profiles.big]\nengine = "vllm"\ngpus_per_node = 4\ntensor_parallel = 8\n')
    code, found = report("vllm", "--engine-version", "0.32.0", "--catalog", str(catalog))
    assert (code, found["outcome"]) == (1, "findings")
    assert found["reason"] == "profile big is impossible: tensor 8 x pipeline 1 = 8 exceeds its 4 GPUs"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name an engine, or give --all"),
        (["vllm", "--all"], "--all goes without vllm"),
        (["vllm", "--help-output", "x", "--engine-version", "1"], "say two different things"),
        (["vllm", "--profile", "p"], "--profile needs --catalog"),
        (["vllm", "--dry-run", "--help-output", "x"], "--dry-run runs the engine"),
        (["vllm", "--profiles-only"], "--profiles-only needs --catalog"),
        (["llamacpp", "--worker-executable", "x", "--engine-version", "b10991"], "--worker-executable runs a program"),
        (["vllm", "--worker-help-output", "x"], "--worker-help-output needs --help-output"),
        (["nothere"], "no engine plugin 'nothere' is installed"),
        (["../vllm"], "did you mean vllm?"),
        (["VLLM"], "did you mean vllm?"),
        (["vllm", "sglang"], "'sglang': name one engine"),
        (["vllm", "--timeout", "nan"], "--timeout: expected 0.1 to 86400.0 seconds"),
        (["vllm", "--executable", ""], "the executable that was named is empty"),
        (["vllm", "--executable", "/bin/sh 'x"], "No closing quotation"),
        (["vllm", "--help-output", "@/dev/zero"], "/dev/zero is over 4 MiB"),
        (["sglang", "--help-output", "x", "--worker-help-output", "y"], "sglang has one program for all roles"),
        (["sglang", "--worker-executable", "y"], "sglang has one program for all roles"),
        (["vllm", "--help-output", "@/no/such/file"], "cannot read /no/such/file: No such file or directory"),
        (["vllm", "--catalog", "/no/such/file"], "cannot read /no/such/file: No such file or directory"),
        (["vllm", "--engine-version", "0.0"], "vllm 0.0 was not recorded (recorded: 0.9.2, "),
        (["sim", "--engine-version", "0.1.0"], "(its plugin records none; it was checked against 0.1.0 as installed: "),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    ended = engine_check(*arguments)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_profile_over_nodes_needs_the_workers_program_checked(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text('[profiles.two]\nengine = "llamacpp"\nnodes = 2\n')
    code, found = report("llamacpp", "--engine-version", "b10434", "--catalog", str(catalog))
    assert (code, found["outcome"]) == (2, "unchecked")
    assert found["reason"] == "profile two needs ggml-rpc-server: ggml-rpc-server was not recorded for b10434"
    assert report("llamacpp", "--engine-version", "b10991", "--catalog", str(catalog))[0] == 0


def test_profiles_only_without_a_profile_of_the_engine_is_a_mistake(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text('[profiles.two]\nengine = "llamacpp"\n')
    ended = engine_check("vllm", "--engine-version", "0.32.0", "--catalog", str(catalog), "--profiles-only")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no profile for vllm" in ended.stderr


def test_a_profile_of_an_engine_that_nobody_knows_is_mentioned(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text('[profiles.typo]\nengine = "vlm"\n')
    ended = engine_check("vllm", "--engine-version", "0.32.0", "--catalog", str(catalog))
    assert ended.returncode == 0
    assert "warning  profile typo is for 'vlm', for which no plugin is installed; it was not checked" in ended.stdout
    assert "warning  the catalog has no profile for vllm" in ended.stdout


def test_all_engines_take_the_profiles_that_are_theirs(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text('[profiles.one]\nengine = "sim"\n[profiles.two]\nengine = "llamacpp"\n')
    given = ["--all", "--catalog", str(catalog), "--profile", "one", "--profiles-only"]
    code, found = report(*given)
    assert [each["engine"] for each in found] == ["sim"]
    assert (code, found[0]["outcome"]) == (0, "accepted")


def test_a_module_that_is_not_installed_is_an_engine_that_is_not_there() -> None:
    ended = engine_check("sglang", "--executable", f"{sys.executable} -m no_such_module_of_sglang")
    assert ended.returncode == 2
    assert "engine not found" in ended.stdout


def test_arguments_that_move_the_server_are_the_profiles_mistake() -> None:
    code, found = report("vllm", "--engine-version", "0.32.0", "--", "--port", "3")
    assert code == 1
    assert "its extra arguments set --port, which llmgw sets itself" in found["reason"]


def test_arguments_after_two_dashes_are_judged() -> None:
    code, found = report("vllm", "--engine-version", "0.32.0", "--", "--num-scheduler-steps", "8")
    assert code == 1
    assert refused(found) == {"--num-scheduler-steps": "not documented"}
    assert found["flags"][-1]["origin"] == "command line"


# how it ends


def test_a_reader_that_goes_away_does_not_change_the_exit_code() -> None:
    command = f"{LLMGW} ctl engine-check vllm --engine-version 0.32.0 -v"
    ended = subprocess.run(
        ["/bin/bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_an_answer_that_cannot_be_printed_is_no_answer() -> None:
    command = f"{LLMGW} ctl engine-check vllm --engine-version 0.32.0 > /dev/full"
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (2, "llmgw: cannot print: No space left on device\n")


def test_a_closed_standard_input_is_said() -> None:
    command = f"{LLMGW} ctl engine-check vllm --help-output - <&-"
    ended = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (2, "llmgw: cannot read standard input: it is closed\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_the_engines_help_too(tmp_path: Path, number: signal.Signals, code: int) -> None:
    pid = tmp_path / "pid"
    executable = script(tmp_path / "llama-server", f'[ "$1" = --help ] && echo $$ > {pid}; exec sleep 1000')
    command = [str(LLMGW), "ctl", "engine-check", "llamacpp", "--executable", executable]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
        running.send_signal(number)
        _, stderr = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == code
    assert "Traceback" not in stderr
    wait_for(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_text_as_powershell_writes_it_is_read(tmp_path: Path) -> None:
    text = tmp_path / "help.txt"
    text.write_bytes(b"\xff\xfe" + "usage: llmgw-sim [options]\n".encode("utf-16-le"))
    ended = engine_check("sim", "--help-output", f"@{text}")
    assert ended.returncode == 2
    assert "\x00" not in ended.stdout


def test_a_script_without_its_interpreter_is_not_called_missing(tmp_path: Path) -> None:
    executable = tmp_path / "llama-server"
    executable.write_text("#!/no/such/interpreter\n")
    executable.chmod(0o755)
    ended = engine_check("llamacpp", "--executable", str(executable))
    assert "the interpreter that its #! line names is not there" in ended.stdout


def test_extra_arguments_that_only_print_and_end_are_the_profiles_mistake() -> None:
    code, found = report("llamacpp", "--engine-version", "b10991", "--", "--list-devices")
    assert code == 1
    assert "have --list-devices, with which it only prints and ends" in found["reason"]


def test_a_file_whose_at_sign_was_forgotten_is_not_taken_for_a_text(tmp_path: Path) -> None:
    text = tmp_path / "help.txt"
    text.write_text("usage: vllm serve\n")
    ended = engine_check("vllm", "--help-output", str(text))
    assert ended.returncode == 2
    assert f"is a file: write --help-output @{text}" in ended.stderr


def test_the_judged_commands_are_shown() -> None:
    _, found = report("sim", "--executable", str(LLMGW.with_name("llmgw-sim")), "--", "--load-time", "1")
    mine = [command["argv"] for command in found["commands"] if command["profile"] == "command line"]
    assert mine[0][-2:] == ["--load-time", "1"]

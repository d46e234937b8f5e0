"""What people install: real wheels in a fresh venv, a third party's engine and a site's wrapper among them."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = Path(__file__).parent / "projects"
ENGINES = ("vllm", "sglang", "llamacpp", "sim")
TIMEOUT_S = 240


def run(*words: str | Path, wanted: int = 0) -> str:
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == wanted, f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheels")
    sources = [ROOT, *(ROOT / "plugins" / engine for engine in ENGINES), *sorted(PROJECTS.iterdir())]
    for source in sources:
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, source)
    return directory


@pytest.fixture(scope="module")
def bin_directory(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh venv with one plugin's wheel, and what that brings."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=True)
    pip_install(home / "bin", wheels, "llmgw-engine-vllm")
    return home / "bin"


def pip_install(bin_directory: Path, wheels: Path, *names: str) -> None:
    pip: list[str | Path] = [bin_directory / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--find-links", wheels, *names)


def loaded(bin_directory: Path) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads(run(bin_directory / "llmgw", "engines", "--json"))
    return found


def test_each_distribution_is_one_wheel(wheels: Path) -> None:
    names = sorted(path.name.split("-")[0] for path in wheels.glob("*.whl"))
    expected = ["acme_llmgw_engine", "acme_llmgw_site", "llmgw_core", *(f"llmgw_engine_{each}" for each in ENGINES)]
    assert names == sorted(expected)


def test_one_plugins_wheel_brings_the_core_and_the_command_and_no_other_engine(bin_directory: Path) -> None:
    assert [each["engine"] for each in loaded(bin_directory)["loaded"]] == ["vllm"]
    installed = run(bin_directory / "python", "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    assert "llmgw-core==" in installed
    assert not [line for line in installed.splitlines() if line.startswith(("torch", "vllm", "llmgw-engine-s"))]


def test_the_installed_plugin_has_its_recorded_flags(bin_directory: Path) -> None:
    run(bin_directory / "llmgw", "ctl", "engine-check", "vllm", "--engine-version", "0.32.0")


def test_a_third_partys_engine_and_a_sites_wrapper_are_discovered_checked_and_applied(
    bin_directory: Path, wheels: Path
) -> None:
    pip_install(bin_directory, wheels, "acme-llmgw-engine", "acme-llmgw-site")
    found = loaded(bin_directory)
    assert [(each["engine"], each["distribution"]) for each in found["loaded"]] == [
        ("acme", "acme-llmgw-engine"),
        ("vllm", "llmgw-engine-vllm"),
    ]
    assert [each["distribution"] for each in found["site"]] == ["acme-llmgw-site"]

    check: list[str | Path] = [bin_directory / "llmgw", "ctl", "engine-check", "acme", "--json", "--help-output"]
    accepted = json.loads(run(*check, "--model VALUE\n--site-flag"))
    assert {flag["flag"]: flag["verdict"] for flag in accepted["flags"]} == {
        "--model": "accepted",
        "--site-flag": "accepted",
    }
    refused = json.loads(run(*check, "--model VALUE\n--other", wanted=1))
    assert refused["flags"][1] == {
        "flag": "--site-flag",
        "role": "head",
        "origin": "llmgw",
        "verdict": "not documented",
        "detail": "this engine's help does not have it",
        "suggestions": [],
    }

    ask = (
        "import llmgw_core as core; engines = core.load_engines();"
        "print(*engines.build_command(engines.widest_specs('acme')[0].shards[0]).argv)"
    )
    built = run(bin_directory / "python", "-c", ask)
    assert built == "numactl --interleave=all acme-serve --model /models/m --site-flag\n"

"""The page on gateways and their unit tell one story."""

import re
from pathlib import Path

from llmgw_core.onboard.unit import packaged_unit

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to-run-a-gateway.md").read_text(encoding="utf-8")
UNIT = packaged_unit("llmgw-gateway.service")
COMMANDS = re.findall(r"^#   (.*)$", UNIT, re.MULTILINE)
SETTINGS = dict(line.split("=", 1) for line in UNIT.splitlines() if "=" in line and not line.startswith("#"))


def test_the_page_leads_through_the_unit() -> None:
    assert "llmgw units gateway > /etc/systemd/system/llmgw-gateway.service" in PAGE
    commands = [each for each in COMMANDS if not each.startswith("echo")]
    assert len(commands) == 4
    assert [each for each in commands if each not in PAGE] == []
    assert SETTINGS["EnvironmentFile"] in PAGE


def test_what_the_page_lets_it_write_and_read_is_its_users() -> None:
    (log,) = set(re.findall(r"/var/log/\S*access\.log", PAGE))
    assert log.startswith(f"/var/log/{SETTINGS['LogsDirectory']}/")
    identity = re.findall(r"--identity (\S+)", SETTINGS["ExecStart"])[0]
    for path in (identity, *re.findall(r"--tls-\w+ (/\S+)", PAGE)):
        assert path.startswith(f"/var/lib/{SETTINGS['StateDirectory']}/")
        assert f"{Path(path).parent}/\n" in PAGE  # and it is installed there for that user

"""What the gateway is measured against: each a process that forwards to one mock engine, pinned to one core."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attrs import define

from llmgw_core.gateway.place import Places, assign_places
from llmgw_core.gateway.route_file import ROUTE_FILE, Routed, write_routes
from llmgw_core.model.identity import Role
from llmgw_core.model.route import ModelRoute, RouteTable, Target, UserKey
from llmgw_core.pki.authority import Authority
from llmgw_core.testing.light_agent import issue

LLMGW = str(Path(sys.executable).with_name("llmgw"))
PEERS = Path(__file__).parent.parent / ".demo" / "peers"
"""Virtual environments, one for each peer: `make bench-peers` makes them."""
MODEL = "mock"
KEY = "sk-3f9c1d7be04a58c26e91b7d05f4a83c2e6d19b50a7c48f3e"
"""What the load generator sends."""
UP_S = 60.0
TARGET_CORE, LOAD_CORE = 0, 1

NGINX = """
worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/error.log; worker_rlimit_nofile 60000;
events {{ worker_connections 30000; }}
http {{
  access_log {home}/access.log;
  client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u;
  scgi_temp_path {home}/s;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096; keepalive_requests 1000000;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      client_body_buffer_size 64k;
    }}
  }}
}}
"""
LITELLM = """
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "http://127.0.0.1:{engine}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
"""


@define(eq=False)
class Running:
    """A target, and the processes of which it is made."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def pids(self) -> list[int]:
        found, at = [self.process.pid], 0
        while at < len(found):
            found += _children(found[at])
            at += 1
        return found

    def cpu_s(self) -> float:
        """Of all its processes, user and system."""
        return sum(map(_cpu_s, self.pids()))

    def memory_bytes(self) -> int:
        """What its processes have, shared pages divided among them (PSS)."""
        return sum(map(pss_bytes, self.pids()))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _children(pid: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task")
    try:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    except OSError:
        return 0.0


def pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(name: str, port: int, command: Sequence[str], home: Path, cores: str = str(TARGET_CORE)) -> Running:
    with (home / f"{name}.log").open("wb") as log:
        pinned = ["taskset", "-c", cores, *command]
        process = subprocess.Popen(pinned, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home)
    end = time.monotonic() + UP_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                last = (home / f"{name}.log").read_text(errors="replace")[-500:]
                raise SystemExit(f"{name} does not come up: {last}") from None
            time.sleep(0.1)
        else:
            return Running(name, port, process)


def start_gateway(home: Path, engine: int, workers: int = 1, cores: str = str(TARGET_CORE)) -> Running:
    """With keys, metrics and an access log; without a control plane, by the routes that it finds on its disk."""
    own = home / f"llmgw-{workers}"
    (own / "state").mkdir(parents=True)
    authority = Authority.create(own / "ca", datetime.now(UTC))  # noqa: TID251 - a real certificate
    issue(authority, own, Role.GATEWAY, "gateway")
    targets = (Target(f"{MODEL}/1", 1, "127.0.0.1", engine),)
    keys = (UserKey("bench", hashlib.sha256(KEY.encode()).hexdigest()),)
    table = RouteTable(1, (ModelRoute(MODEL, targets=targets),), keys)
    write_routes(own / "state" / ROUTE_FILE, Routed(table, assign_places(Places(), table, ())))
    port = free_port()
    where = ("--server", "https://127.0.0.1:1", "--identity", str(own / "gateway"), "--state", str(own / "state"))
    what = ("--listen", f"127.0.0.1:{port}", "--workers", str(workers), "--access-log", str(own / "access.log"))
    return start(f"llmgw-{workers}", port, [LLMGW, "gateway", *where, *what], home, cores)


def start_nginx(home: Path, engine: int) -> Running | None:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        return None
    own, port = home / "nginx", free_port()
    own.mkdir()
    (own / "nginx.conf").write_text(NGINX.format(home=own, engine=engine, port=port))
    return start("nginx", port, [found, "-c", str(own / "nginx.conf")], home)


def start_router(name: str, words: Sequence[str], home: Path, engine: int) -> Running | None:
    program = PEERS / name / "bin" / name
    if not program.exists():
        return None
    port, metrics = free_port(), free_port()
    where = ("--worker-urls", f"http://127.0.0.1:{engine}", "--host", "127.0.0.1", "--port", str(port))
    return start(name, port, [str(program), *words, *where, "--prometheus-port", str(metrics)], home)


def start_litellm(home: Path, engine: int) -> Running | None:
    program = PEERS / "litellm" / "bin" / "litellm"
    if not program.exists():
        return None
    config, port = home / "litellm.yaml", free_port()
    config.write_text(LITELLM.format(model=MODEL, engine=engine, key=KEY))
    return start("litellm", port, [str(program), "--config", str(config), "--port", str(port)], home)


def start_all(home: Path, engine: int) -> dict[str, Running]:
    """By name; those that are not installed are said."""
    makers: dict[str, Callable[[], Running | None]] = {
        "llmgw": lambda: start_gateway(home, engine),
        "nginx": lambda: start_nginx(home, engine),
        "vllm-router": lambda: start_router("vllm-router", (), home, engine),
        "sglang-router": lambda: start_router("sglang-router", ("launch",), home, engine),
        "litellm": lambda: start_litellm(home, engine),
    }
    started = {}
    for name, make in makers.items():
        running = make()
        if running is None:
            print(f"not measured, since it is not installed: {name} (make bench-peers)", flush=True)
        else:
            started[name] = running
    return started

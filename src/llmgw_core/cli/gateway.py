"""`llmgw gateway`: the address that users call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmgw_core.cli.listening import parse_place

if TYPE_CHECKING:
    from llmgw_core.gateway.app import GatewaySettings
    from llmgw_core.gateway.settings import DataSettings

MOST_WORKERS = 64
_seconds = click.FloatRange(0.05, 24 * 3600.0)
_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--server", required=True, metavar="https://HOST:7443", help="The control plane.")
@click.option("--identity", required=True, metavar="PREFIX", help="PREFIX.crt, PREFIX.key and ca.crt beside them.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/llmgw/gateway"),
    show_default=True,
    help="Where the last routes are kept. One gateway for each.",
)
@click.option("--listen", default=":8080", show_default=True, metavar="[ADDRESS]:PORT", help="For users.")
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    default=1,
    show_default=True,
    help="Processes that share the address; about one for each core.",
)
@click.option("--no-auth", is_flag=True, help="Let everybody in who reaches the address; without it users need a key.")
@click.option("--tls-listen", metavar="[ADDRESS]:PORT", help="For users, with TLS.")
@click.option("--tls-certificate", type=_file, help="What the TLS port shows, with its chain (PEM).")
@click.option("--tls-key", type=_file, help="Its private key (PEM).")
@click.option("--metrics", metavar="[ADDRESS]:PORT", help="Serve /metrics there too, without a key.")
@click.option("--access-log", metavar="FILE", help="A JSON line for each request; - for standard output.")
@click.option(
    "--hold",
    type=click.FloatRange(0, 3600.0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a request waits where no replica of its model is ready.",
)
@click.option(
    "--max-body", type=click.IntRange(1, 2048), default=32, show_default=True, metavar="MIB", help="Of a request."
)
@click.option(
    "--answer-timeout",
    type=_seconds,
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="From a request to the first byte of its answer.",
)
@click.option(
    "--stall-timeout",
    type=_seconds,
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two bytes of an answer.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0, 24 * 3600.0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long requests may go on once it is asked to stop.",
)
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
def gateway(log_json: bool, **given: object) -> None:
    """Run a gateway: one OpenAI-compatible address in front of all ready replicas."""
    from llmgw_core.gateway.app import run_gateway
    from llmgw_core.log import set_up_logs

    settings = _understand(**given)  # type: ignore[arg-type]
    set_up_logs(as_json=log_json)
    run_gateway(settings)


def _understand(
    server: str,
    identity: str,
    state: Path,
    listen: str,
    workers: int,
    no_auth: bool,
    tls_listen: str | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    metrics: str | None,
    access_log: str | None,
    drain_timeout: float,
    **data: float,
) -> GatewaySettings:
    from llmgw_core.cli.identity import identity_files
    from llmgw_core.gateway.app import GatewaySettings
    from llmgw_core.net.call import parse_server

    if (tls_listen, tls_certificate, tls_key).count(None) not in (0, 3):
        raise click.UsageError("--tls-listen, --tls-certificate and --tls-key are given together, or none of them")
    return GatewaySettings(
        server=parse_server(server),
        credentials=identity_files(identity),
        state=state,
        data=_data_settings(no_auth, **data),
        listen=parse_place("--listen", listen),
        workers=workers,
        tls=None if tls_listen is None else parse_place("--tls-listen", tls_listen),
        tls_files=None if tls_certificate is None or tls_key is None else (tls_certificate, tls_key),
        metrics=None if metrics is None else parse_place("--metrics", metrics),
        access_log=Path(access_log) if access_log not in (None, "-") else None,
        logs_access=access_log is not None,
        drain_s=drain_timeout,
    )


def _data_settings(
    no_auth: bool, hold: float, max_body: float, answer_timeout: float, stall_timeout: float
) -> DataSettings:
    from llmgw_core.gateway.settings import DataSettings

    return DataSettings(
        authenticates=not no_auth,
        body_bytes=int(max_body) * 1024 * 1024,
        answer_s=answer_timeout,
        stall_s=stall_timeout,
        hold_s=hold,
    )

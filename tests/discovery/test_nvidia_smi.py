"""What nvidia-smi printed on real machines, and what it says of their GPUs. Numbers are those of the field cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.discovery.nvidia_smi import FIELD_SETS, query, read_gpus, refused_field
from llmgw_core.model.node import Found, Gpu

OLD = ("index", "uuid", "name", "temperature.gpu", "utilization.gpu", "memory.used", "memory.total")
USUAL = ("index", "name", "uuid", "memory.total")


def uuid(number: int) -> str:
    return f"GPU-a00000{number:02x}-0000-4000-8000-0000000000{number:02x}"


def test_c01_a_healthy_box_lists_its_eight_gpus() -> None:
    text = "".join(f"{n}, {uuid(n)}, GeForce GTX TITAN X, 5{n}, 8{n}, 644{n}, 12206\n" for n in range(8))
    report = read_gpus(text, OLD)
    assert (report.outcome, report.reason, len(report.gpus)) == (Found.SOME, "", 8)
    assert report.gpus[3] == Gpu(
        index=3,
        uuid=uuid(3),
        name="GeForce GTX TITAN X",
        memory_total_mib=12206,
        memory_used_mib=6443,
        utilization_percent=83,
        temperature_c=53,
    )


def test_c02_two_gpus_of_one_name_are_two() -> None:
    text = "2100, 49140, NVIDIA RTX A6000\n2100, 49140, NVIDIA RTX A6000\n"
    report = read_gpus(text, ("clocks.max.sm", "memory.total", "gpu_name"))
    assert [(gpu.name, gpu.memory_total_mib) for gpu in report.gpus] == [("NVIDIA RTX A6000", 49140)] * 2


@pytest.mark.parametrize(
    ("marker", "trouble"),
    [
        ("[Not Supported]", ""),
        ("[N/A]", ""),
        ("N/A", ""),
        ("-", ""),
        ("", ""),
        ("[Insufficient Permissions]", ""),
        ("[Unknown Error]", "Unknown Error"),
        ("ERR!", "ERR!"),
        ("[GPU requires reset]", "GPU requires reset"),
    ],
)
def test_c06_c16_a_marker_makes_one_field_unknown_and_a_fault_is_told(marker: str, trouble: str) -> None:
    report = read_gpus(f"14, NVIDIA RTX 4000 Ada Generation, {uuid(14)}, {marker}\n", USUAL)
    assert (report.outcome, report.reason) == (Found.SOME, "")
    assert report.gpus == (Gpu(14, uuid(14), "NVIDIA RTX 4000 Ada Generation", trouble=trouble),)


@pytest.mark.parametrize("name", FIELD_SETS[0])
def test_no_field_that_is_unknown_loses_its_gpu(name: str) -> None:
    whole = {"index": "3", "uuid": uuid(3), "memory.total": "81559", "name": "NVIDIA H100"}
    text = ", ".join({**whole, name: "[Unknown Error]"}.get(field, "[N/A]") for field in FIELD_SETS[0])
    (gpu,) = read_gpus(text, FIELD_SETS[0]).gpus
    assert (gpu.index, gpu.uuid) == (None if name == "index" else 3, None if name == "uuid" else uuid(3))


@pytest.mark.parametrize(
    ("case", "text", "fields", "gpu"),
    [
        (
            "C09",
            "0, Orin (nvgpu), [N/A], [N/A], [N/A], [N/A], [N/A]\n",
            ("index", "name", "uuid", "memory.total", "memory.used", "utilization.gpu", "driver_version"),
            Gpu(0, None, "Orin (nvgpu)"),
        ),
        ("C10", "0, NVIDIA Thor, [N/A], [N/A]\n", USUAL, Gpu(0, None, "NVIDIA Thor")),
        ("C10", f"0, NVIDIA Thor, {uuid(0)}, 125772\n", USUAL, Gpu(0, uuid(0), "NVIDIA Thor", 125772)),
        (
            "C21",
            "index, name, memory.total [MiB], utilization.gpu [%]\n0, NVIDIA H100 80GB HBM3, 81559 MiB, 0 %\n",
            ("index", "name", "memory.total", "utilization.gpu"),
            Gpu(0, None, "NVIDIA H100 80GB HBM3", 81559, utilization_percent=0),
        ),
        (
            "C25",
            "\n0, NVIDIA GeForce RTX 3080 Ti, 12288\r\n\n",
            ("index", "name", "memory.total"),
            Gpu(0, None, "NVIDIA GeForce RTX 3080 Ti", 12288),
        ),
    ],
)
def test_one_gpu_and_nothing_to_complain_of(case: str, text: str, fields: tuple[str, ...], gpu: Gpu) -> None:
    report = read_gpus(text, fields)
    assert (report.outcome, report.gpus, report.reason) == (Found.SOME, (gpu,), ""), case


MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\n"
FAILURES = [
    # case, stdout, exit code, signal, what the reason says
    ("C11", f"{MISMATCH}NVML library version: 535.161\n", 18, None, ["exit code 18", "535.161", "reboot the node"]),
    (
        "C13",
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n",
        255,
        None,
        ["0000:0B:00.0", "exit code 255"],
    ),
    ("C19", "Failed to initialize NVML: Unknown Error\n", 255, None, ["Unknown Error", "in a container"]),
    ("C20", 'Field "compute_cap" is not a valid field to query.\n\n', 2, None, ["compute_cap"]),
    ("C23", "Sun May 26 12:43:43 2024\n+-----\n", None, 11, ["signal 11 (SIGSEGV)"]),
    ("C23", f"0, NVIDIA GeForce RTX 4090, {uuid(0)}, 24564\n", None, 11, ["signal 11 (SIGSEGV)"]),
    ("C23", "Sun May 26 12:43:43 2024\n+-----\n", 139, None, ["signal 11 (SIGSEGV)"]),
    ("C27", MISMATCH, 18, None, ["driver/library mismatch"]),
    (
        "C29",
        "Mismatch in versions between nvidia-smi and NVML. \n"
        "Are you sure you are using nvidia-smi provided with the driver?\n",
        0,
        None,
        ["Mismatch in versions", "listed no GPU"],
    ),
    (
        "C30",
        "ERROR: Option noheader is not recognized. Please run 'nvidia-smi -h' for help.\n",
        2,
        None,
        ["Option noheader"],
    ),
    ("no text", "", 9, None, ["exit code 9", "it printed nothing"]),
]


@pytest.mark.parametrize(("case", "text", "code", "signal", "said"), FAILURES)
@pytest.mark.parametrize("fields", [*FIELD_SETS, USUAL, ("name",), ()])
def test_what_failed_is_no_gpu_and_not_none_either(
    case: str, text: str, code: int | None, signal: int | None, said: list[str], fields: tuple[str, ...]
) -> None:
    report = read_gpus(text, fields, code=code, signal=signal)
    assert (report.outcome, report.gpus) == (Found.FAILED, ()), case
    assert all(each in report.reason for each in said), report.reason
    assert "\n" not in report.reason


def test_c14_healthy_rows_keep_their_indices_and_the_error_is_told() -> None:
    lost = (
        "Unable to determine the device handle for GPU0000:C1:00.0: GPU is lost.  Reboot the system to recover this GPU"
    )
    text = f"0, NVIDIA H100 80GB HBM3, {uuid(1)}, 81559\n{lost}\n2, NVIDIA H100 80GB HBM3, {uuid(3)}, 81559\n"
    report = read_gpus(text, USUAL)
    assert [(gpu.index, gpu.uuid) for gpu in report.gpus] == [(0, uuid(1)), (2, uuid(3))]
    assert (report.outcome, report.reason) == (Found.SOME, lost)


def test_c36_the_one_gpu_that_is_left_keeps_index_1() -> None:
    text = (
        "Unable to determine the device handle for GPU0: 0000:24:00.0: GPU is lost.  Reboot the system to recover "
        "this GPU\n1, NVIDIA GeForce RTX 5070 Ti, 300.00 W, 300.00 W, 34.61 W, 616.92\n"
    )
    fields = ("index", "name", "power.limit", "power.max_limit", "power.draw", "driver_version")
    report = read_gpus(text, fields, code=15)
    assert report.gpus == (Gpu(1, None, "NVIDIA GeForce RTX 5070 Ti", driver_version="616.92"),)
    assert "0000:24:00.0" in report.reason


@pytest.mark.parametrize("text", ["No devices were found\n", "No devices found.\n", ""])
def test_no_devices_is_none(text: str) -> None:
    assert read_gpus(text, USUAL).outcome is Found.NONE


def test_no_devices_is_none_whatever_the_exit_code() -> None:
    assert read_gpus("No devices were found\n", USUAL, code=6).outcome is Found.NONE


def test_c31_a_divided_gpu_is_marked() -> None:
    fields = ("index", "name", "uuid", "memory.total", "utilization.gpu", "mig.mode.current")
    text = "".join(
        f"{n}, NVIDIA A800-SXM4-80GB, {uuid(n)}, 81920, [N/A], {mode}\n"
        for n, mode in enumerate(["Enabled", "Disabled", "[N/A]"])
    )
    assert [gpu.mig for gpu in read_gpus(text, fields).gpus] == [True, False, None]


def test_c33_four_gpus_of_a_grace_node() -> None:
    text = "".join(f"{n}, NVIDIA GB200, {uuid(n)}, 189471\n" for n in range(4))
    assert [gpu.memory_total_mib for gpu in read_gpus(text, USUAL).gpus] == [189471] * 4


def test_c27_a_value_of_the_wrong_type_is_unknown_and_told() -> None:
    report = read_gpus(f"0, NVIDIA H100, {uuid(0)}, Failed\n", USUAL)
    assert report.gpus == (Gpu(0, uuid(0), "NVIDIA H100"),)
    assert report.reason == "GPU 0: memory.total cannot be 'Failed'"


def test_a_cut_row_is_no_gpu_and_is_told() -> None:
    report = read_gpus(f"0, NVIDIA H100, {uuid(0)}, 81559\n1, NVIDIA H10", USUAL)
    assert (len(report.gpus), report.reason) == (1, "1, NVIDIA H10")


def test_a_comma_in_a_name_is_the_names() -> None:
    assert read_gpus(f"0, ACME, Inc. T1, {uuid(0)}, 81559\n", USUAL).gpus[0].name == "ACME, Inc. T1"


def test_a_gpu_that_is_listed_twice_is_one() -> None:
    row = f"0, NVIDIA H100, {uuid(0)}, 81559\n"
    report = read_gpus(row * 2, USUAL)
    assert (len(report.gpus), report.reason) == (1, f"{uuid(0)} is listed twice")


def test_what_is_said_on_standard_error_is_kept_too() -> None:
    report = read_gpus(f"0, NVIDIA H100, {uuid(0)}, 81559\n", USUAL, stderr="WARNING: infoROM is corrupted\n")
    assert report.reason == "WARNING: infoROM is corrupted"


def test_a_reason_is_bounded_and_fit_for_a_terminal() -> None:
    reason = read_gpus("".join(f"\x1b[31m{n}{'x' * 999}\n" for n in range(99)), USUAL, code=1).reason
    assert len(reason) < 2000
    assert reason.isprintable()
    assert "and 93 more" in reason


def test_c20_a_refused_field_asks_for_a_smaller_set() -> None:
    assert refused_field('Field "compute_cap" is not a valid field to query.\n\n') == "compute_cap"
    assert refused_field(MISMATCH) is None
    sizes = [len(fields) for fields in FIELD_SETS]
    assert sizes == sorted(sizes, reverse=True)
    assert all({"index", "uuid", "name"} <= set(fields) for fields in FIELD_SETS)


def test_c30_options_are_joined_by_equals() -> None:
    assert query("/usr/bin/nvidia-smi", ("index", "uuid")) == (
        "/usr/bin/nvidia-smi",
        "--query-gpu=index,uuid",
        "--format=csv,noheader,nounits",
    )


CELLS = st.sampled_from(["0", "1", uuid(1), "[N/A]", "ERR!", "99999999999999999999", "MiB", "²", "a, b", " ", "\x85"])
TEXTS = st.one_of(st.text(), st.lists(st.lists(CELLS, max_size=8).map(", ".join), max_size=5).map("\n".join))


@given(
    text=TEXTS,
    stderr=TEXTS,
    fields=st.lists(st.sampled_from([*FIELD_SETS[0], "gpu_name", "power.draw"]), max_size=6),
    code=st.one_of(st.none(), st.integers(0, 255)),
    signal=st.one_of(st.none(), st.integers(1, 64)),
)
def test_any_text_gives_a_report_that_agrees_with_itself(
    text: str, stderr: str, fields: list[str], code: int | None, signal: int | None
) -> None:
    report = read_gpus(text, fields, code=code, signal=signal, stderr=stderr)
    assert bool(report.gpus) == (report.outcome is Found.SOME)
    assert report.reason or report.outcome is not Found.FAILED
    assert len(report.gpus) <= len(text.splitlines())
    assert report.reason.isprintable()


def test_of_ten_thousands_of_rows_256_are_kept() -> None:
    rows = "".join(f"{number}, GPU-{number:08x}, H200\n" for number in range(30_000))
    report = read_gpus(rows, ("index", "uuid", "name"))
    assert len(report.gpus) == 256
    assert "it lists more than 256 GPUs" in report.reason

"""O23: the throttle word: what is now, what was before, what happened in the run; digits of sixteen; texts that hold no word."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from edgekit.agent.readings import Unreadable
from edgekit.agent.sensors.pi import sysfs_word, throttle_word
from edgekit.report.summary import ThrottleVerdict
from edgekit.report.throttling import throttle_verdict
from edgekit.values import ThrottleWord

LOW, CAPPED, THROTTLED, SOFT = "under-voltage", "clock capped", "throttled", "soft temperature limit"

# Decoded by hand from the bit table of raspberrypi/linux issue 2367.
WORDS = [
    ("throttled=0x0", (), ()),
    ("throttled=0x50000", (), (LOW, THROTTLED)),
    ("throttled=0x50005", (LOW, THROTTLED), (LOW, THROTTLED)),
    ("0x8", (SOFT,), ()),
    ("throttled=0x50000\r\n", (), (LOW, THROTTLED)),
    ("throttled=0xe0008", (SOFT,), (CAPPED, THROTTLED, SOFT)),
    ("throttled=0xF000F", (LOW, CAPPED, THROTTLED, SOFT), (LOW, CAPPED, THROTTLED, SOFT)),
]


@pytest.mark.parametrize(("text", "live", "since_boot"), WORDS)
def test_now_and_since_boot_are_two_things(text: str, live: tuple[str, ...], since_boot: tuple[str, ...]) -> None:
    word = ThrottleWord(throttle_word(text))
    assert (word.live, word.since_boot) == (live, since_boot)


@pytest.mark.parametrize(
    ("text", "value"), [("e0000", 0xE0000), ("80008", 0x80008), ("50005\n", 0x50005), ("0", 0), ("80000", 0x80000)]
)
def test_the_kernel_s_file_has_bare_digits_of_sixteen(text: str, value: int) -> None:
    assert sysfs_word(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "throttled=",
        "VCHI initialization failed",
        "",
        "throttled=50005",
        "throttled=0x",
        "throttled=0xg",
        "327685",
        "0x123456789",
    ],
)
def test_a_text_without_a_word_is_unknown_and_kept(text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        throttle_word(text)
    assert text in str(caught.value)


@pytest.mark.parametrize("text", ["", "throttled=0x0", "yes", "-1", "123456789"])
def test_a_kernel_s_file_without_a_word(text: str) -> None:
    with pytest.raises(Unreadable):
        sysfs_word(text)


def test_every_word_is_split_as_its_bits_say() -> None:
    names = (LOW, CAPPED, THROTTLED, SOFT)
    for live, past in itertools.product(range(16), range(16)):
        word = ThrottleWord(throttle_word(f"throttled={live | past << 16:#x}"))
        assert word.live == tuple(name for bit, name in enumerate(names) if live & 1 << bit)
        assert word.since_boot == tuple(name for bit, name in enumerate(names) if past & 1 << bit)
        assert word.under_voltage == bool(live % 2)


def run_with(words: dict[int, int], *, temperature_c: float = 45.0, seconds: int = 30) -> ThrottleVerdict:
    """The verdict on a Pi whose word was read each second; ``words`` from the given seconds on."""
    samples: list[dict[str, Any]] = []
    word = 0
    for second in range(seconds):
        word = words.get(second, word)
        samples.append({"t_s": float(second), "temperature_c": temperature_c, "throttle_word": word})
    return throttle_verdict(samples, [], facts={"sensors": {"set": "raspberry-pi"}})


def test_what_was_before_the_run_did_not_happen_in_it() -> None:
    found = run_with({0: 0x50000})
    assert (found.verdict, found.causes, found.invalid) == ("not_throttled", (), ())


def test_what_is_remembered_at_the_end_and_was_not_at_the_start_happened_in_the_run() -> None:
    assert ThrottleWord(0xE0000).new_since(ThrottleWord(0)) == (CAPPED, THROTTLED, SOFT)
    found = run_with({0: 0x0, 29: 0xE0000})
    assert found.verdict == "throttled"
    assert found.main is not None and found.main.cause == "thermal"
    assert found.main.evidence == ("the firmware remembers clock capped, throttled, soft temperature limit",)
    assert found.spells[0].start_s == 28.0


def test_a_drop_between_two_looks_is_told_by_what_is_remembered() -> None:
    found = run_with({0: 0xE0000, 12: 0xF0000})
    assert found.main is not None and found.main.cause == "under_voltage"
    assert (found.spells[0].start_s, found.spells[0].end_s) == (11.0, 12.0)


@pytest.mark.parametrize(
    ("word", "temperature_c", "cause"),
    [
        (0x50005, 38.0, "under_voltage"),
        (0xF000F, 84.0, "under_voltage"),  # low voltage sets the marks of heat too
        (0x60006, 81.0, "thermal"),
        (0x40004, 81.0, "thermal"),
        (0x80008, 61.0, "thermal"),  # the soft limit of a 3B+ begins at 60 degrees
        (0x20002, 45.0, "unknown"),  # capped and cool, and the supply was never low
    ],
)
def test_low_voltage_and_heat_are_told_apart(word: int, temperature_c: float, cause: str) -> None:
    found = run_with({10: word, 20: word & 0xF0000}, temperature_c=temperature_c)
    assert found.verdict == "throttled"
    assert found.main is not None and found.main.cause == cause
    assert (found.main.onset_s, found.main.share) == (10.0, pytest.approx(1 / 3))


def test_a_supply_that_was_low_explains_what_stays_capped() -> None:
    found = run_with({10: 0x50005, 15: 0x50004, 20: 0x50000})
    assert [item.cause for item in found.causes] == ["under_voltage"]
    assert found.causes[0].share == pytest.approx(1 / 3)
    assert "supply was too low" in found.invalid[0]


def test_words_that_could_not_be_read_are_unknown_and_never_unthrottled() -> None:
    samples = [
        {"t_s": float(second), "temperature_c": 50.0, "unknown": {"throttle_word": "VCHI initialization failed"}}
        for second in range(20)
    ]
    found = throttle_verdict(samples, [], facts={"sensors": {"set": "raspberry-pi"}})
    assert (found.verdict, found.unknown) == ("unknown", "VCHI initialization failed")

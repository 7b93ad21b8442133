"""Selection: deterministic, stratified, disjoint by group, extendable, in one pass of bounded memory."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.data import building, diverse, quotas
from calib.data.select import Held, Part, Rules, Selection, blocks, choose, gather
from calib.data.source import Fields, Item, Record
from calib.errors import ConfigError, DataError

DEVICES = ["flatbed"] * 11 + ["fax"] * 4 + ["phone"] * 4 + ["thermal"]
BY_DEVICE = Rules(stratify=("device",), group="document")
NOTHING = Held()
METHODS = ["random", "kmeans", "kcenter"]


def nothing() -> Fields:
    raise AssertionError("selection reads no sample")


def item(record: Record) -> Item:
    return Item(record, nothing)


def log(count: int, first: int = 0) -> list[Item]:
    return [item(entry(i)) for i in range(first, first + count)]


def entry(i: int) -> Record:
    return {
        "id": f"s{i}",
        "document": f"d{i // 7}",
        "device": DEVICES[(i // 7) % 20],
        "day": f"2026-{i % 12 + 1:02}-05",
    }


def ids(items: Sequence[Item]) -> list[str]:
    return [str(item.record["id"]) for item in items]


def values(items: Sequence[Item], column: str) -> Counter[str]:
    return Counter(str(item.record[column]) for item in items)


def picked(items: Sequence[Item], one: Part, other: Part, rules: Rules = BY_DEVICE, **rest: object) -> Selection:
    return choose(gather(items, one, other, rules), one, other, rules, **rest)  # type: ignore[arg-type]


def embedded(item: Item) -> np.ndarray:
    """Three far-apart clusters; one of them is small."""
    draws = np.random.default_rng(int(str(item.record["id"])[1:]))
    centre = draws.choice([0.0, 50.0, 100.0], p=[0.6, 0.32, 0.08])
    return draws.normal(size=5) + centre


def disjoint(selection: Selection, held: Held = NOTHING) -> None:
    one, two = (
        [*map(item, known), *new]
        for known, new in ((held.calibration, selection.calibration), (held.evaluation, selection.evaluation))
    )
    assert len(set(ids(one) + ids(two))) == len(one) + len(two)
    assert not values(one, "document").keys() & values(two, "document").keys()


@given(st.integers(0, 2**31))
@settings(max_examples=8, deadline=None)
def test_no_group_on_both_sides_and_strata_in_proportion(seed: int) -> None:
    chosen = picked(log(2800), Part(64), Part(100), replace(BY_DEVICE, seed=seed))
    assert (len(chosen.calibration), len(chosen.evaluation)) == (64, 100)
    disjoint(chosen)
    assert values(chosen.evaluation, "device") == {"flatbed": 55, "fax": 20, "phone": 20, "thermal": 5}
    assert not chosen.notes


@pytest.mark.parametrize("method", METHODS)
def test_selection_does_not_depend_on_the_order_of_the_source(method: str) -> None:
    items, part = log(1400), Part(32, method)
    shuffled = random.Random(1).sample(items, len(items))
    one, other = (picked(some, part, Part(64), embed=embedded) for some in (items, shuffled))
    assert (ids(one.calibration), ids(one.evaluation)) == (ids(other.calibration), ids(other.evaluation))
    again = picked(items, part, Part(64), replace(BY_DEVICE, seed=4), embed=embedded)
    assert ids(one.calibration) != ids(again.calibration)


strata = st.lists(st.integers(1, 400), min_size=1, max_size=8)


@given(strata, st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_what_is_kept_of_a_stream_does_not_depend_on_its_order(
    sizes: list[int], one: int, other: int, seed: int
) -> None:
    items = [item({"id": f"{s}-{i}", "kind": s}) for s, size in enumerate(sizes) for i in range(size)]
    rules, parts = Rules(("kind",), seed=seed), (Part(one), Part(other))
    kept = gather(items, *parts, rules)
    shuffled = gather(random.Random(seed).sample(items, len(items)), *parts, rules)
    assert [c.item.record["id"] for c in kept.kept] == [c.item.record["id"] for c in shuffled.kept]
    assert kept.counts[0] == kept.counts[1] == {(str(s),): size for s, size in enumerate(sizes)}
    assert len(kept.kept) <= 2 * 8 * (one + other) + 16 * len(sizes)
    # balanced sets can be filled from what is kept as from everything: a stratum keeps a multiple of its share
    level = Counter(c.stratum for c in kept.kept)
    for size, (_, have) in zip(sizes, sorted(level.items()), strict=True):
        assert have >= min(size, 8 * (one + other) // len(sizes))


@given(strata, st.integers(0, 60), st.data())
def test_seats_never_go_away_and_keep_floors_and_caps(sizes: list[int], size: int, data: st.DataObject) -> None:
    weights = dict(enumerate(sizes))
    caps = {key: data.draw(st.integers(0, 20)) for key in weights}
    floors = {key: data.draw(st.integers(0, min(3, cap))) for key, cap in caps.items()}
    small, large = (quotas.seats(weights, total, floors, caps) for total in (size, size + 1))
    assert all(floors[key] <= small[key] <= large[key] <= caps[key] for key in weights)
    assert sum(large.values()) == max(sum(floors.values()), min(size + 1, sum(caps.values())))
    free = quotas.seats(weights, size, {})
    total = sum(sizes)
    assert all(abs(free[key] - size * weight / total) < len(sizes) for key, weight in weights.items())


@given(st.integers(0, 2**31), st.integers(4, 40), st.integers(1, 20))
@settings(max_examples=10, deadline=None)
def test_a_larger_random_set_holds_the_smaller_one(seed: int, small: int, more: int) -> None:
    rules = Rules(("device",), time="day", seed=seed)
    later = Part(30, since="2026-06-01")
    one, other = (picked(log(900), Part(size, until="2026-06-01"), later, rules) for size in (small, small + more))
    assert set(ids(one.calibration)) < set(ids(other.calibration))


@pytest.mark.parametrize("balance", ["proportional", "balanced"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 1])
def test_an_extended_set_keeps_what_it_held(method: str, balance: str, seed: int) -> None:
    rules, small, large = replace(BY_DEVICE, seed=seed), Part(24, method, balance), Part(60, method, balance)
    first = picked(log(1400), small, Part(40, balance=balance), rules, embed=embedded)
    held = Held(*(tuple(item.record for item in side) for side in (first.calibration, first.evaluation)))
    for source in (log(1400), log(2100), log(1400, first=700)):  # as it was, grown, and half of it replaced
        more = picked(source, large, Part(80, balance=balance), rules, held=held, embed=embedded)
        assert (len(more.calibration), len(more.evaluation)) == (36, 40), "only what is new"
        disjoint(more, held)
        shares = values([*first.calibration, *more.calibration], "device")
        if balance == "balanced":
            assert set(shares.values()) == {15}
        else:
            assert shares == {"flatbed": 33, "fax": 12, "phone": 12, "thermal": 3}


def test_what_is_held_breaks_no_rule() -> None:
    held = Held((entry(0),), (entry(1),))  # one document
    with pytest.raises(DataError, match=r"share 'd0' \(document\)"):
        picked(log(700), Part(16), Part(16), held=held)
    with pytest.raises(DataError, match="the calibration set holds 3 samples, more than the recipe's 2"):
        picked(log(700), Part(2), Part(16), held=Held(tuple(map(entry, range(3)))))
    with pytest.raises(DataError, match="column 'device', which not every sample"):
        picked(log(700), Part(2), Part(16), held=Held(({"id": "s1", "document": "d"},)))


def test_balanced_is_balanced_and_says_where_it_cannot_be() -> None:
    chosen = picked(log(2800), Part(40, balance="balanced"), Part(80, balance="balanced"))
    assert set(values(chosen.calibration, "device").values()) == {10}
    assert set(values(chosen.evaluation, "device").values()) == {20}
    assert not chosen.notes
    rare = [item({"id": str(i), "device": "fax" if i < 6 else "ab"[i % 2]}) for i in range(400)]
    chosen = picked(rare, Part(30, balance="balanced"), Part(30), Rules(("device",)))
    assert values(chosen.calibration, "device")["fax"] in (5, 6)
    assert max(values(chosen.calibration, "device").values()) == 13 or len(chosen.calibration) == 30
    assert "calibration: balanced as far as the source goes: 'fax' has" in chosen.notes[0]


def test_a_minimum_is_respected_or_named() -> None:
    chosen = picked(log(2800), Part(40, minimum=5), Part(100))
    assert values(chosen.calibration, "device") == {"flatbed": 21, "fax": 7, "phone": 7, "thermal": 5}
    with pytest.raises(DataError, match="at least 5 of each of 4 strata: it needs 20"):
        picked(log(2800), Part(16, minimum=5), Part(100))
    rare = [item({"id": str(i), "device": "fax" if i < 4 else "phone"}) for i in range(400)]
    with pytest.raises(DataError, match=r"calibration set: it needs [123] more of 'fax'.*a smaller minimum"):
        picked(rare, Part(40, minimum=5), Part(40), Rules(("device",)))


def test_several_columns_are_crossed() -> None:
    items = [item({"id": str(i), "device": "ab"[i % 2], "site": i // 2 % 3}) for i in range(600)]
    chosen = picked(items, Part(12, balance="balanced"), Part(60), Rules(("device", "site")))
    crossed = Counter((i.record["device"], i.record["site"]) for i in chosen.calibration)
    assert len(crossed) == 6 and set(crossed.values()) == {2}


def test_too_few_samples_in_a_stratum_are_named() -> None:
    items = [item({"id": str(i), "device": "fax" if i < 2 else "flatbed"}) for i in range(40)]
    with pytest.raises(DataError, match=r"it needs .* more of '(fax|flatbed)'.*ask for fewer samples"):
        picked(items, Part(30), Part(30), Rules(("device",)))
    with pytest.raises(DataError, match=r"the calibration set: it needs \d+ more"):
        picked(items, Part(30, balance="balanced"), Part(30, balance="balanced"), Rules(("device",)))
    with pytest.raises(DataError, match="column 'site', which not every sample"):
        picked(items, Part(2), Part(2), Rules(("site",)))
    with pytest.raises(DataError, match="it needs 1 more of 'fax'"):
        picked([items[0], *items[2:]], Part(20), Part(19, minimum=1), Rules(("device",)))


@pytest.mark.parametrize(("one", "other"), [(5, 5), (6, 4), (1, 9), (9, 1)])
def test_small_data_is_divided_exactly(one: int, other: int) -> None:
    items = [item({"id": str(i), "group": i // 2, "kind": "ab"[i // 20]}) for i in range(40)]
    chosen = picked(items, Part(4 * one), Part(4 * other), Rules(("kind",), group="group"))
    assert len(chosen.calibration) + len(chosen.evaluation) == 40
    assert set(values(chosen.calibration, "kind").values()) == {2 * one}


@given(st.data(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_whatever_is_asked_for_is_done_or_refused(data: st.DataObject, seed: int) -> None:
    draws = random.Random(seed)
    records = [
        {"id": str(i), "document": draws.randrange(40), "kind": draws.choice("aaab"), "day": draws.randrange(9)}
        for i in range(200)
    ]
    sides = [
        Part(
            data.draw(st.integers(1, 60)),
            balance=data.draw(st.sampled_from(["proportional", "balanced"])),
            minimum=data.draw(st.integers(0, 1)),
            where=data.draw(st.sampled_from([{}, {"kind": ("a",)}])),
            since=data.draw(st.sampled_from(["", "3"])),
            until=data.draw(st.sampled_from(["", "6"])),
        )
        for _ in range(2)
    ]
    rules = Rules(("kind",), "document", "day", seed)
    try:
        chosen = picked([item(r) for r in records], *sides, rules)
    except DataError as error:
        if not any(words in str(error) for words in ("too few", "too small", "has no samples")):
            raise
        return
    disjoint(chosen)
    for part, items in zip(sides, (chosen.calibration, chosen.evaluation), strict=True):
        assert len(items) == part.samples
        for i in items:
            day = float(i.record["day"])
            assert (not part.since or day >= 3) and (not part.until or day < 6)
            assert not part.where or i.record["kind"] == "a"
        assert not part.minimum or len(values(items, "kind")) == (1 if part.where else 2)


def test_large_groups_that_hardly_fit_are_divided_in_another_way() -> None:
    refused = 0
    for seed in range(20):
        draws, items = random.Random(seed), []
        for group in range(60):
            kind = draws.choice("aaaabbbccd")
            items += [item({"id": f"{group}-{i}", "group": group, "kind": kind}) for i in range(draws.randint(1, 10))]
        parts = Part(len(items) * 35 // 100), Part(len(items) * 55 // 100)
        try:
            picked(items, *parts, Rules(("kind",), "group", seed=seed))
        except DataError:
            refused += 1
    assert refused <= 3, "one way alone refuses half of them"


def test_unreadable_samples_are_replaced() -> None:
    items = log(1400)
    first = picked(items, Part(32), Part(64))
    bad = set(ids(first.calibration)[:5])
    second = picked(items, Part(32), Part(64), bad=bad)
    assert len(second.calibration) == 32 and not bad & set(ids(second.calibration) + ids(second.evaluation))
    with pytest.raises(DataError, match=r"\(300 could not be read\)"):
        picked(items[:350], Part(30), Part(30), bad=set(ids(items[:300])))


def test_time_windows_are_respected_and_groups_stay_on_one_side() -> None:
    rules = replace(BY_DEVICE, time="day")
    before, after = Part(48, until="2026-06-01"), Part(60, since="2026-06-01T00:00:00Z")
    chosen = picked(log(2800), before, after, rules)
    disjoint(chosen)
    assert max(values(chosen.calibration, "day")) == "2026-05-05"
    assert min(values(chosen.evaluation, "day")) == "2026-06-05"
    numbers = [item({"id": str(i), "day": i / 2}) for i in range(100)]
    chosen = picked(numbers, Part(10, until="5"), Part(10, since="5", until="10"), Rules(time="day"))
    assert sorted(float(i.record["day"]) for i in chosen.calibration) == [i / 2 for i in range(10)]
    assert sorted(float(i.record["day"]) for i in chosen.evaluation) == [5 + i / 2 for i in range(10)]


def test_a_time_that_cannot_be_compared_is_named() -> None:
    rules, window = Rules(time="day"), Part(4, since="2026-06-01")
    for day in (20260605, "yesterday", float("nan")):
        with pytest.raises(
            DataError, match=r"sample 'x': day = .* cannot be compared with calibration's since = '2026"
        ):
            picked([item({"id": "x", "day": day})], window, Part(4), rules)
    with pytest.raises(ConfigError, match="needs the column it speaks of"):
        picked(log(70), window, Part(4))
    with pytest.raises(DataError, match=r"calibration: the source has no samples within since = '2027-01-01' \(day\)"):
        picked(log(70), Part(4, since="2027-01-01"), Part(4), rules)


def test_where_admits_values_and_names_those_that_do_not_come() -> None:
    office = Part(20, where={"device": ("fax", "thermal")})
    chosen = picked(log(1400), office, Part(40, where={"device": ("phone",)}))
    assert values(chosen.calibration, "device") == {"fax": 16, "thermal": 4}
    assert values(chosen.evaluation, "device") == {"phone": 40}
    with pytest.raises(DataError, match=r"no sample with device = 'telex'.*\[calibration\] where"):
        picked(log(1400), Part(20, where={"device": ("fax", "telex")}), Part(40))
    with pytest.raises(DataError, match="column 'ward', which not every sample"):
        picked(log(1400), Part(20, where={"ward": ("1",)}), Part(40))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"samples": 4, "minimum": 5}, r"minimum must be between 0 and samples \(4\)"),
        ({"samples": 4, "where": {"device": ()}}, "where.device admits no value"),
        ({"samples": 4, "since": "spring"}, "since must be a number or a date"),
        ({"samples": 4, "since": "2026-01-01", "until": "2025-01-01"}, "must be before until"),
        ({"samples": 4, "since": "2026-01-01", "until": "17"}, "of the same kind"),
    ],
)
def test_a_wrong_part_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Part(**arguments)  # type: ignore[arg-type]


def test_an_id_twice_and_too_many_strata_are_errors() -> None:
    with pytest.raises(DataError, match="sample id 's3' appears twice"):
        picked([*log(70), *log(1, first=3)], Part(4), Part(4))
    twice = (item({"id": str(i % 50_000)}) for i in count())  # endless, and far more than is remembered
    with pytest.raises(DataError, match=r"sample id '\d+' appears twice"):
        gather(twice, Part(4), Part(4), Rules())
    many = (item({"id": str(i), "serial": i}) for i in count())
    with pytest.raises(DataError, match="more than 1000 strata"):
        gather(many, Part(4), Part(4), Rules(("serial",)))
    with pytest.raises(DataError, match="the source has no samples"):
        picked([], Part(4), Part(4))


def test_an_endless_stream_is_cut() -> None:
    endless = (item(entry(i)) for i in count())
    chosen = picked(islice(endless, 2800), Part(64), Part(100))  # type: ignore[arg-type]
    assert ids(chosen.calibration) == ids(picked(log(2800), Part(64), Part(100)).calibration)


def test_kcenter_leaves_none_far_and_kmeans_finds_every_cluster() -> None:
    items, sizes = [item({"id": f"s{i}"}) for i in range(1500)], (Part(12), Part(12))
    rows = np.stack([embedded(i) for i in items])

    def radius(chosen: Sequence[Item]) -> float:
        centres = np.stack([embedded(i) for i in chosen])
        return float(np.linalg.norm(rows[:, None] - centres[None], axis=2).min(axis=1).max())

    def small_cluster(chosen: Sequence[Item]) -> int:
        return sum(embedded(i).mean() > 80 for i in chosen)

    worst: dict[str, list[float]] = {}
    rare: dict[str, list[int]] = {}
    for seed in range(6):
        for method in METHODS:
            part = replace(sizes[0], method=method)
            chosen = picked(items, part, sizes[1], Rules(seed=seed), embed=embedded).calibration
            worst.setdefault(method, []).append(radius(chosen))
            rare.setdefault(method, []).append(small_cluster(chosen))
    assert max(worst["kcenter"]) < 10 < max(worst["random"]), worst
    assert min(rare["kmeans"]) >= 1 and min(rare["kcenter"]) >= 1 and min(rare["random"]) == 0, rare


def test_a_larger_kcenter_set_holds_the_smaller_one() -> None:
    pool = np.random.default_rng(0).normal(size=(80, 3))
    chosen = [diverse.kcenter(pool[:0], pool, n, 0) for n in (5, 20, 80)]
    assert chosen[2][:20] == chosen[1] and chosen[1][:5] == chosen[0]
    assert sorted(chosen[2]) == list(range(80))
    rest = [i for i in range(80) if i not in chosen[0]]
    more = diverse.kcenter(pool[chosen[0]], pool[rest], 15, 0)
    assert [rest[i] for i in more] == chosen[1][5:], "extended, it is the larger one"


@pytest.mark.parametrize("method", ["kmeans", "kcenter"])
def test_equal_samples_are_chosen_from_too(method: str) -> None:
    pool = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0)
    chosen = diverse.METHODS[method](pool[:0], pool, 12, 0)
    assert len(set(chosen)) == 12 and {i < 10 for i in chosen} == {True, False}


@pytest.mark.parametrize("method", ["kmeans", "kcenter"])
def test_diverse_works_inside_the_quotas_of_strata(method: str) -> None:
    chosen = picked(log(2800), Part(40, method), Part(100), embed=embedded)
    assert values(chosen.calibration, "device") == {"flatbed": 22, "fax": 8, "phone": 8, "thermal": 2}
    assert chosen.notes == (f"calibration: {method} chose among 160 samples drawn at random",)


def test_features_that_cannot_be_used_are_named() -> None:
    part = Part(8, "kcenter")
    with pytest.raises(ConfigError, match=r"method = 'kcenter' needs features: set the recipe's `features`"):
        picked(log(140), part, Part(8))

    def chosen(vector: object) -> None:
        picked(log(140), part, Part(8), Rules(), embed=vector)

    with pytest.raises(DataError, match=r"sample 's\d+': its features hold NaN or Inf"):
        chosen(lambda i: np.array([1.0, np.inf if i.record["device"] == "fax" else 0.0]))
    with pytest.raises(DataError, match=r"sample 's\d+' has [23] features and 's\d+' has [23]"):
        chosen(lambda i: np.zeros(3 if i.record["device"] == "fax" else 2))
    with pytest.raises(DataError, match=r"the features of all 32 samples are equal"):
        chosen(lambda i: np.full(3, 0.1))
    with pytest.raises(DataError, match=r"sample 's\d+': its features are not numbers"):
        chosen(lambda i: np.array(["high"]))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=300), st.integers(1, 20))
def test_blocks_are_whole_groups_of_nearly_equal_size(groups: list[int], number: int) -> None:
    records = [{"id": str(i), "group": g} for i, g in enumerate(groups)]
    result = blocks(records, "group", number)
    sizes = Counter(result)
    assert sorted(sizes) == list(range(min(number, len(set(groups)))))
    assert all(len({b for b, g in zip(result, groups, strict=True) if g == group}) == 1 for group in groups)
    assert max(sizes.values()) - min(sizes.values()) <= max(Counter(groups).values())
    shuffled = random.Random(2).sample(range(len(groups)), len(groups))
    again = blocks([records[i] for i in shuffled], "group", number)
    assert [result[i] for i in shuffled] == again
    alone = Counter(blocks(records, "", number))
    assert max(alone.values()) - min(alone.values()) <= 1


WINDOWS = """
import numpy as np
def windows(first, last):
    for i in range(first, last):
        draws = np.random.default_rng(i)
        centre = draws.choice([0, 50, 100], p=[0.6, 0.32, 0.08])
        yield {"id": f"s{i}", "patient": i // 5, "hand": "lr"[i // 5 % 2]}, {"x": np.float32(draws.normal(size=9) + centre)}
def looks(inputs):
    return np.array([inputs["x"].mean(), inputs["x"].std()])
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_extends_a_set_from_a_source_that_moved_on(method: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WINDOWS)

    def build(name: str, size: int, first: int, last: int, extend: Path | None = None) -> dict[str, str]:
        (tmp_path / "r.toml").write_text(
            f'name = "r"\nsource = "mine.py:windows"\nfeatures = "mine.py:looks"\ngroup = "patient"\n'
            f'stratify = ["hand"]\noptions = {{first = {first}, last = {last}}}\n'
            f'[calibration]\nsamples = {size}\nmethod = "{method}"\nminimum = 3\n[evaluation]\nsamples = 20\n'
        )
        built, _ = building.build(tmp_path / "r.toml", tmp_path / name, extend=extend)
        assert len(built) == size
        return {entry.id: entry.sha256 for entry in built.entries}

    small = build("a", 8, 0, 300)
    assert build("again", 8, 0, 300) == small
    large = build("b", 20, 200, 700, extend=tmp_path / "a")
    assert small.items() < large.items(), "the same samples, bit by bit"


MEMORY = """
import sys, tracemalloc
from itertools import count, islice
from calib.data.select import Part, Rules, gather, choose
from calib.data.source import Item

def stream(number):
    for i in range(number):
        record = {"id": f"sample-{i}", "device": f"device-{i * i % 7}", "document": f"d{i // 7}", "day": i}
        yield Item(record, lambda i=i, payload=bytearray(500): payload)

def used(number):
    parts, rules = (Part(64), Part(100, balance="balanced")), Rules(("device",), "document", seed=1)
    tracemalloc.start()
    candidates = gather(stream(number), *parts, rules)
    choose(candidates, *parts, rules)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, len(candidates.kept)

for number in map(int, sys.argv[1:]):
    print(*used(number))
"""


def growth(*sizes: int) -> Iterator[tuple[int, int]]:
    """Peak of traced memory in bytes, and candidates kept, in a process of its own."""
    run = subprocess.run([sys.executable, "-c", MEMORY, *map(str, sizes)], capture_output=True, text=True, check=True)
    for line in run.stdout.splitlines():
        peak, kept = map(int, line.split())
        yield peak, kept


def test_memory_does_not_grow_with_the_stream() -> None:
    (small, kept), (large, kept_of_more) = growth(9_000, 20_000)
    assert max(kept, kept_of_more) <= 2 * 8 * 164
    assert large < 1.1 * small, f"{small} bytes for 9,000 samples, {large} for 20,000"

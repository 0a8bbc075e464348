"""Every behaviour case of the areas that are built is cited by a test.

`cases.txt` holds ids by area, and nothing of what the cases say. Where the contract lies beside this checkout the two
are compared.
"""

import json
import re

from tests.architecture.tree import ROOT, sources

HERE = ROOT / "tests" / "architecture"
CONTRACT = ROOT.parent / "shared" / "contract" / "cases.jsonl"
CASE = re.compile(r"\b[A-Z]{3,4}-\d{3}\b")

PENDING: dict[str, str] = {}
"""Cases that need what is not built yet, with the reason."""


def listed() -> dict[str, list[str]]:
    """The ids by area."""
    areas: dict[str, list[str]] = {}
    area = ""
    for line in (HERE / "cases.txt").read_text().splitlines():
        if not line.startswith(" "):
            area = line.partition(":")[0]
        areas.setdefault(area, []).extend(CASE.findall(line))
    return areas


def cited() -> set[str]:
    """Ids that stand anywhere in a test module."""
    return {case for path in sources("tests") for case in CASE.findall(path.read_text()) if path.parent != HERE}


def test_every_case_is_cited_by_a_test():
    """A case is proved by a test that names it, or is listed as pending with a reason."""
    found = cited()
    missing = {
        area: lacking
        for area, cases in listed().items()
        if (lacking := [case for case in cases if case not in found and case not in PENDING])
    }
    assert missing == {}


def test_pending_cases_are_pending():
    """A case that a test cites is pending no more, and only cases of these areas can be."""
    known = {case for cases in listed().values() for case in cases}
    assert known >= PENDING.keys()
    assert cited().isdisjoint(PENDING)
    assert all(len(reason) > 20 for reason in PENDING.values())


def test_listed_cases_are_those_of_the_contract():
    """The list is whole: the contract, where it is at hand, has no other cases in these areas."""
    areas = listed()
    assert len(areas) == 17
    assert all(cases for cases in areas.values())
    if not CONTRACT.is_file():
        return
    of_contract: dict[str, list[str]] = {area: [] for area in areas}
    for line in CONTRACT.read_text().splitlines():
        case = json.loads(line)
        if case["area"] in of_contract:
            of_contract[case["area"]].append(case["id"])
    assert of_contract == areas

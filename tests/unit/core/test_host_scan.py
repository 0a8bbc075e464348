"""The scan of a shared host: page by page, as far as a step needs, and to the end before anything is certified."""

from tests.unit.core.world import Shell, World, names
from thread_objects.contract.views import Page, Survey
from thread_objects.core import command
from thread_objects.core.config import MaintenanceConfig

PAGE = 3


def asked(shell: Shell) -> Page:
    """The page that the open survey wants."""
    (survey,) = [c for c in shell.commands if isinstance(c, command.Survey)]
    assert survey.page is not None
    return survey.page


def answer(shell: Shell) -> list[command.Command]:
    """Answer the open survey with its page of the fake ledger."""
    page = asked(shell)
    threads = shell.world.survey().threads
    behind = [view for view in threads if view.thread_id > (page.after or "")]
    if page.wrapped:
        behind = [view for view in behind if view.thread_id <= (page.origin or "")]
    shown, following = behind[:PAGE], None
    if len(behind) > PAGE:
        following = page.model_copy(update={"after": shown[-1].thread_id})
    elif page.origin and not page.wrapped:
        following = Page(origin=page.origin, wrapped=True)
    shell._close(command.Survey)
    shell.event.surveyed(Survey(threads=tuple(shown), following=following), shell.now)
    return shell.advance()


def host(*states: tuple[str, str], slots: int = 2) -> Shell:
    """A host whose Threads have one row each, with one mutation to look at."""
    world = World()
    for thread, state in states:
        world.submit(thread, state=state)
    shell = Shell(world=world, config=MaintenanceConfig(shared_host=True, native_slots=slots))
    shell.maintenance.ensure_alarm(shell.now)
    shell.now += 100
    return shell


def test_a_step_reads_no_further_than_it_needs():
    """Both slots can be filled from the first page: the second one is not asked for."""
    shell = host(*((name, "ready") for name in "abcdefgh"))
    assert names(shell.begin()) == ["Survey"]
    assert names(answer(shell)) == ["AttemptThread a", "AttemptThread b"]


def test_a_round_starts_behind_the_thread_served_last():
    """The page of the next event begins there, so that the selection goes around however long the list is."""
    shell = host(*((name, "ready") for name in "abcdefgh"))
    shell.begin()
    answer(shell)
    for thread in "ab":
        shell.attempted(thread)
        while any(isinstance(c, command.Survey) for c in shell.commands):
            answer(shell)
    served = [c.thread_id for c in shell.log if isinstance(c, command.AttemptThread)]
    assert served == sorted(served)
    assert asked_pages(shell)[0] == Page()
    assert all(page.after is not None for page in asked_pages(shell)[1:])


def asked_pages(shell: Shell) -> list[Page]:
    """All pages asked for, in order."""
    return [c.page for c in shell.log if isinstance(c, command.Survey) and c.page is not None]


def test_a_crowd_that_waits_hides_nobody():
    """The round goes on over pages of suspended Threads to the ready one behind them, and round to the start."""
    shell = host(*((f"a{n}", "suspended") for n in range(7)), ("z", "ready"))
    shell.begin()
    answer(shell)
    answer(shell)
    assert "AttemptThread z" in names(answer(shell))


def test_nothing_is_certified_before_the_last_page():
    """A generation is acknowledged once every page was seen; with a page left out it stays dirty."""
    shell = host(*((f"a{n}", "suspended") for n in range(7)))
    record = shell.maintenance.state.record
    assert record.processed < record.dirty
    shell.begin()
    pages = 0
    while not shell.event.done:
        if any(isinstance(c, command.Survey) for c in shell.commands):
            answer(shell)
            pages += 1
            continue
        (recovery,) = [c for c in shell.commands if isinstance(c, command.RecoverThread)]
        shell.recovered(recovery.thread_id)
    shell.finish()
    assert pages >= 3
    record = shell.maintenance.state.record
    assert (record.processed, record.nonterminal) == (record.dirty, 7)
    assert shell.alarm() is None


def test_a_checkpoint_that_sees_work_left_reads_no_further():
    """One slot, nothing but ready Threads: the checkpoint knows after one page that the object is not done."""
    shell = host(*((f"a{n}", "ready") for n in range(9)), slots=1)
    shell.begin()
    answer(shell)
    shell.attempted("a0")
    answer(shell)
    assert [c for c in shell.commands if isinstance(c, command.Survey)] == []
    assert shell.event.done
    shell.finish()
    record = shell.maintenance.state.record
    assert record.processed < record.dirty
    assert shell.alarm() is not None


def test_a_batch_of_a_host_is_no_reading_of_the_host():
    """Its survey holds the Threads it touched: the next step reads for itself."""
    shell = host(("a", "ready"), ("b", "ready"))
    mutation = shell.maintenance.prearm(shell.now)
    shell.maintenance.release(mutation, shell.now, progressed=("thread-object:native",))
    shell.maintenance.note_survey(Survey(threads=(shell.world.view("a"),), partial=True), shell.now)
    assert names(shell.begin()) == ["Survey"]

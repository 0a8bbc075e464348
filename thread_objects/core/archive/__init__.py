"""Archives, the pure part: a Thread as JSON lines, read back line by line, and whether they hold together."""

from thread_objects.core.archive.check import Checked as Checked
from thread_objects.core.archive.check import check as check
from thread_objects.core.archive.check import verify_lines as verify_lines
from thread_objects.core.archive.defect import ArchiveDefect as ArchiveDefect
from thread_objects.core.archive.lines import LINE_BYTES_MAX as LINE_BYTES_MAX
from thread_objects.core.archive.lines import read as read
from thread_objects.core.archive.seal import Seal as Seal

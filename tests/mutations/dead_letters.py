"""Rows of the table of mutations for the redrive of dead letters."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

DLQ = "tests/cli/test_dlq.py"
LETTERS = "tests/unit/tools/test_dead_letters.py"
OFFSETS = "tests/unit/tools/test_redriven_offsets.py"

ROWS: tuple[Row, ...] = (
    (
        "a redrive that fails reports one letter",
        "tools/redrive.py",
        "                    callback=_ignore,\n",
        "",
        (f"{DLQ}::test_failed_redrive_reports_one_letter[ottla]",),
    ),
    (
        "an interrupted redrive does not remember letters as redriven that it did not read",
        "tools/redrive.py",
        "        if self.is_full or self._stopping.asked:\n            return\n",
        "        if self.is_full:\n            return\n",
        (f"{DLQ}::test_interrupt_ends_a_redrive_after_its_transaction[ottla-13]",),
    ),
    (
        "a second redrive with the same group ends the first one with one line",
        "cli/dlq_redrive.py",
        "    except ProducerFenced as error:\n",
        "    except ZeroDivisionError as error:\n",
        (f"{DLQ}::test_second_redrive_fences_the_first_one[ottla-7]",),
    ),
    (
        "a redrive without a right to its group says what is missing",
        "tools/redrive.py",
        "            with self._naming_group(), self._producer.transaction():\n",
        "            with self._producer.transaction():\n",
        (f"{DLQ}::test_missing_right_is_one_line_and_nothing_is_half_done",),
    ),
    (
        "a letter that was redriven is not redriven again by a later redrive",
        "tools/redrive.py",
        "                self._producer.send_offsets_to_transaction(offsets, self._group)\n",
        "",
        (
            f"{DLQ}::test_filters_leave_letters_for_later_and_none_is_redriven_twice[ottla]",
            f"{DLQ}::test_killed_redrive_continues_without_a_duplicate[ottla-1]",
        ),
    ),
    (
        "letters that a filter did not choose are left for later redrives",
        "tools/redrive.py",
        "            self.counts.not_chosen += 1\n",
        (
            "            self.counts.not_chosen += 1\n"
            "            self._add(record.topic_partition, record.offset, record.offset + 1)\n"
        ),
        (f"{DLQ}::test_filters_leave_letters_for_later_and_none_is_redriven_twice[ottla]",),
    ),
    (
        "a letter that was redriven too often is left",
        "tools/dead_letters.py",
        "    if letter.redrives >= plan.max_replays:\n        return Left.REPLAYS\n",
        "",
        (f"{LETTERS}::test_letter_is_left_with_the_reason",),
    ),
    (
        "a letter does not return to the dead letter topic",
        "tools/dead_letters.py",
        "    if topic == record.topic:\n        return Left.TO_ITSELF\n",
        "",
        (f"{LETTERS}::test_letter_is_left_with_the_reason",),
    ),
    (
        "a letter of a record that a share group did not copy is not redriven as null",
        "tools/dead_letters.py",
        "    if record.key is None and record.value is None and _may_omit_record(letter):\n",
        "    if False:\n",
        (f"{LETTERS}::test_letter_is_left_with_the_reason",),
    ),
    (
        "metadata that a broker would refuse is not committed",
        "tools/redriven_offsets.py",
        "        if len(text) > MOST_BYTES:\n",
        "        if False:\n",
        (f"{OFFSETS}::test_metadata_that_a_broker_would_refuse_is_not_written",),
    ),
    (
        "offsets that another program committed do not count as redriven",
        "tools/redriven_offsets.py",
        "    if not metadata.startswith(_MARK):\n        raise NotARedrive(metadata[:40])\n",
        "    if not metadata.startswith(_MARK):\n        return\n",
        (f"{DLQ}::test_group_of_another_program_is_refused[ottla]",),
    ),
)

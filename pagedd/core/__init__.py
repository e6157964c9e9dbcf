"""The pure core: pages, prefix index and scheduler. Standard library only, no IO, no clock.

The nouns, and who owns what::

    Request ──n──▶ Sequence ──▶ PageTable        logical  0   1   2   3
    (asked)  Group (a choice)   (its pages)      physical 7   2   9   4
                                                          │   │   │   │
    PrefixIndex   key of a full page ──▶ page             ▼   ▼   ▼   ▼
    PagePool      refs per page   free ─▶ owned ◀─▶ shared     (by tables that name it)
                                   ▲        │ ▲
                                   │        ▼ │ hit
                                   └───── cached               (no table, but a key)
                                            │ evict: least recently used first, its key
                                            ▼        forgotten at once; copied out if that pays
    HostPool      refs per page   free ─▶ cached ◀─▶ swapped   (by sequences that come back)

    submit ──▶ waiting ──admit──▶ running ──end──▶ Finished
               (UrgencyQueue) ◀──preempt── (a slot each)
                     └── swapped: with copies of its pages in the HostPool

    plan(now) ──▶ StepPlan ──▶ Runner ──▶ StepResult ──▶ commit ──▶ StepEvents

A running sequence has ``num_tokens`` known and ``num_computed`` of them in the cache; a step
computes some of the difference, and where it computes the last known token it draws the next. That
is the one rule for prefill, decoding, chunks, prefix hits and the way back after a preemption.

``scheduler`` is the door. Behind it, ``state`` holds everything and its elementary changes,
``memory`` every change of a page table, ``tier`` what goes to host memory. The decisions are
``queue``, ``priority``, ``ageing``, ``clients`` and ``turns`` (who comes first), ``admission`` (who
leaves the queue, by the arithmetic of ``need``), ``running`` (who computes what), ``policies``,
``costs`` and ``preemption`` (who gives way to whom, and how). ``draft`` writes the plan,
``outcome`` takes in the result, ``ledger``, ``fill`` and ``totals`` keep account, ``explain`` gives
reasons, ``audit`` checks it all from scratch and ``snapshot`` shows it.
"""

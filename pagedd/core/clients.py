"""Clients: who has used how many tokens, for turns that are fair.

A virtual token counter for each client, as in Sheng et al. 2024, "Fairness in Serving Large
Language Models". A request is charged its prompt tokens that are not in the cache when it is
admitted, and each of its choices every token that it draws; both weigh 1. What a preemption makes
it compute again is not charged: that was not its client's choice.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace, nlargest

MAX_PAST = 1024  # clients that are remembered though they have no request


class Account:
    """The counter of one client that has requests in service. It only grows."""

    __slots__ = ("client", "requests", "used")

    def __init__(self, client: str, used: int) -> None:
        self.client = client
        self.used = used  # tokens
        self.requests = 0


class Clients:
    """The accounts. Each operation takes O(log n) of the clients, but for a rare clean-up.

    A client that comes, or comes again, starts with at least what the least of those in service
    has used: to be idle earns nothing. A client that has gone is remembered as long as it had used
    more than that, so that it gains nothing by going either; all are forgotten when nobody is
    left. Ever new clients can hold up one that has used more than they: ageing bounds that.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._past: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # of the accounts: never more than they have used

    def enter(self, client: str) -> Account:
        """One more request of ``client`` is in service."""
        account = self._accounts.get(client)
        if account is None:
            used = max(self._past.pop(client, 0), self._least())
            account = self._accounts[client] = Account(client, used)
            heappush(self._heap, (used, client))
            if len(self._heap) > 2 * len(self._accounts) + 16:
                self._heap = [(each.used, name) for name, each in self._accounts.items()]
                heapify(self._heap)
        account.requests += 1
        return account

    def leave(self, account: Account) -> None:
        """A request of ``account`` has ended."""
        account.requests -= 1
        if account.requests:
            return
        del self._accounts[account.client]
        if not self._accounts:
            self._past.clear()
            self._heap.clear()
        elif account.used > self._least():
            self._past[account.client] = account.used
            if len(self._past) > MAX_PAST:
                self._forget()

    def accounts(self) -> dict[str, Account]:
        """A copy of those in service, by client."""
        return dict(self._accounts)

    def _least(self) -> int:
        """The least that anybody in service has used; 0 when nobody is."""
        heap = self._heap
        while heap:
            used, client = heap[0]
            account = self._accounts.get(client)
            if account is None:
                heappop(heap)
            elif account.used != used:
                heapreplace(heap, (account.used, client))
            else:
                return used
        return 0

    def _forget(self) -> None:
        """Of those that have gone, keep half: those that have used most."""
        least = self._least()
        kept = ((used, client) for client, used in self._past.items() if used > least)
        self._past = {client: used for used, client in nlargest(MAX_PAST // 2, kept)}

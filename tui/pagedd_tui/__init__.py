"""``pagedd top``: a dashboard of the pages, the queues and the reasons. No torch, no engine."""

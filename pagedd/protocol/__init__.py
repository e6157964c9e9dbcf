"""The wire protocol, version 1, as structs. The manual is ``pagedd-protocol.7``.

This package imports msgspec alone: server, client and dashboard share it. Client frames refuse
unknown fields; server frames ignore them, so that an old client can talk to a new daemon.
"""

from __future__ import annotations

from pagedd.protocol.client_frames import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    MAX_HISTORY,
    MAX_STOP_LENGTH,
    MAX_STOP_STRINGS,
    MAX_TIMEOUT_S,
    MAX_TOOLS,
    Cancel,
    ClientFrame,
    Explain,
    FunctionCall,
    FunctionTool,
    Generate,
    GuidedText,
    Id,
    JsonSchema,
    Message,
    Params,
    Priority,
    Reprioritize,
    ResponseFormat,
    StatusRequest,
    StopString,
    Subscribe,
    TokenId,
    Tool,
    ToolCall,
    Unsubscribe,
)
from pagedd.protocol.records import (
    Event,
    Explanation,
    Holder,
    PageTable,
    Record,
)
from pagedd.protocol.server_frames import (
    Accepted,
    Choice,
    Delta,
    Done,
    Error,
    Hello,
    Ledger,
    Limits,
    Logprob,
    Preempted,
    Resumed,
    Started,
    TopLogprob,
    Usage,
)
from pagedd.protocol.state_frames import (
    CACHED,
    FREE,
    OWNED,
    SHARED,
    SWAPPED,
    Counters,
    PageCells,
    SequenceRow,
    State,
)
from pagedd.protocol.status import (
    HostPageCounts,
    PageCounts,
    PreemptionCounts,
    PrefixCounts,
    RequestCounts,
    Status,
    TokenCounts,
)

VERSION = 1
SUBPROTOCOL_JSON = "pagedd.v1.json"
SUBPROTOCOL_MSGPACK = "pagedd.v1.msgpack"
MAX_FRAME_BYTES = 16 * 1024 * 1024
PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0
STATUS_PATH = "/status"  # on the Unix socket: answers a plain GET, beside the websocket

ServerFrame = (
    Hello
    | Accepted
    | Started
    | Delta
    | Preempted
    | Resumed
    | Done
    | Error
    | Explanation
    | Event
    | State
    | Status
)

__all__ = [
    "CACHED",
    "FREE",
    "INT32_MAX",
    "INT32_MIN",
    "INT64_MAX",
    "MAX_FRAME_BYTES",
    "MAX_HISTORY",
    "MAX_STOP_LENGTH",
    "MAX_STOP_STRINGS",
    "MAX_TIMEOUT_S",
    "MAX_TOOLS",
    "OWNED",
    "PING_INTERVAL_S",
    "PING_TIMEOUT_S",
    "SHARED",
    "STATUS_PATH",
    "SUBPROTOCOL_JSON",
    "SUBPROTOCOL_MSGPACK",
    "SWAPPED",
    "VERSION",
    "Accepted",
    "Cancel",
    "Choice",
    "ClientFrame",
    "Counters",
    "Delta",
    "Done",
    "Error",
    "Event",
    "Explain",
    "Explanation",
    "FunctionCall",
    "FunctionTool",
    "Generate",
    "GuidedText",
    "Hello",
    "Holder",
    "HostPageCounts",
    "Id",
    "JsonSchema",
    "Ledger",
    "Limits",
    "Logprob",
    "Message",
    "PageCells",
    "PageCounts",
    "PageTable",
    "Params",
    "Preempted",
    "PreemptionCounts",
    "PrefixCounts",
    "Priority",
    "Record",
    "Reprioritize",
    "RequestCounts",
    "ResponseFormat",
    "Resumed",
    "SequenceRow",
    "ServerFrame",
    "Started",
    "State",
    "Status",
    "StatusRequest",
    "StopString",
    "Subscribe",
    "TokenCounts",
    "TokenId",
    "Tool",
    "ToolCall",
    "TopLogprob",
    "Unsubscribe",
    "Usage",
]

"""The HTTP edge: OpenAI's endpoints over the same hub and the same limits as the websocket."""

"""No model: an imitation of the interface of the other engines, for tests and for a first look. It repeats the last message.

It runs as many requests at a time as come, a word per step, and has a context of so many words. {"kill_once": "path"} kills the
process at the first request whose text is "die", unless there is a file at that path.
"""

import asyncio
import os
import signal

from complete import Refused


class Engine:
    def __init__(self, settings):
        self._context = settings.get("max_model_len", 64)
        self._kill_once = settings.get("kill_once")

    def dead(self):
        return False

    async def chat(self, body):
        words = [word for message in body["messages"] for word in str(message.get("content")).split()]
        if len(words) >= self._context:
            raise Refused(f"the prompt has {len(words)} tokens, and the model's context {self._context}: shorten it, or raise max_model_len")
        if words[-1:] == ["die"] and self._kill_once and not os.path.exists(self._kill_once):
            open(self._kill_once, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        most = min(body.get("max_tokens", self._context), self._context - len(words))
        said = []
        for word in str(body["messages"][-1].get("content")).split()[:most]:
            await asyncio.sleep(0)
            said.append(word)
        return {
            "object": "chat.completion",
            "model": "imitation",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": " ".join(said)},
                    "finish_reason": "stop" if len(said) < most else "length",
                }
            ],
            "usage": {"prompt_tokens": len(words), "completion_tokens": len(said), "total_tokens": len(words) + len(said)},
        }

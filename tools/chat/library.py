"""openai-harmony as make_vectors.py and compare.py ask it: by its JSON, so that nothing is lost on the way."""
import json

from openai_harmony import (HarmonyError, Role, StreamableParser, StreamState, ToolNamespaceConfig,
                            load_harmony_encoding)

STATES = {StreamState.EXPECT_START: "start", StreamState.HEADER: "header", StreamState.CONTENT: "content"}
REFUSED = (HarmonyError, RuntimeError, ValueError)


class Library:
    def __init__(self):
        self.encoding = load_harmony_encoding("HarmonyGptOss")
        self.inner = self.encoding._inner
        self.builtin = {n: getattr(ToolNamespaceConfig, n)().model_dump(exclude_none=True) for n in ("browser", "python")}

    def render(self, conversation, next_role="assistant"):
        """Ids, or None where the library refuses."""
        config = {"auto_drop_analysis": False}
        text = json.dumps(conversation)
        try:
            if next_role is None:
                return self.inner.render_conversation(text, config)
            if next_role == "training":
                return self.inner.render_conversation_for_training(text, config)
            return self.inner.render_conversation_for_completion(text, next_role, config)
        except REFUSED:
            return None

    def encode(self, text):
        return self.encoding.encode(text, allowed_special="all")

    def steps(self, ids, role):
        """What the parser says after every token and at the end, and its messages; None where it refuses."""
        parser = StreamableParser(self.encoding, role and Role(role))
        steps = []
        try:
            for id in [*ids, None]:
                parser.process_eos() if id is None else parser.process(id)
                step = {"state": STATES[parser.state], "role": parser.current_role and parser.current_role.value,
                        "channel": parser.current_channel, "recipient": parser.current_recipient,
                        "content_type": parser.current_content_type, "delta": parser.last_content_delta}
                steps.append({k: v for k, v in step.items() if v is not None})
            return steps, [m.to_dict() for m in parser.messages]
        except REFUSED:
            return None

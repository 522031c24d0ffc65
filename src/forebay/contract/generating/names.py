"""What a queue and its fields are called in generated code."""

from forebay.contract.kinds import KINDS
from forebay.contract.naming import class_name, python_name
from forebay.contract.values import QueueContract

__all__ = ["QueueNames"]


class QueueNames:
    """One queue of a contract, and its names."""

    def __init__(self, queue: QueueContract) -> None:
        self.queue = queue
        self.attribute = python_name(queue.name)
        title = class_name(queue.name)
        self.format = f"{self.attribute.upper()}_FORMAT"
        self.task = f"{title}Task"
        self.fields = f"{title}Fields"
        self.handler = f"{title}Handler"
        self.client = f"{title}Queue"
        self.handle = f"handle_{self.attribute}"
        self.bind = f"bind_{self.attribute}"
        self.read = f"read_{self.attribute}_task"
        self.serialize = f"serialize_{self.attribute}_task"
        self.deserialize = f"deserialize_{self.attribute}_task"
        self.columns = [(python_name(field.name), KINDS[field.type]) for field in queue.fields]

    @property
    def of_tasks(self) -> tuple[str, ...]:
        """What the module of tasks has of it."""
        functions = (self.bind, self.deserialize, self.read, self.serialize)
        return (self.format, self.fields, self.handler, self.task, *functions)

    def has_lists(self) -> bool:
        """Whether a field is a list of numbers."""
        return any(kind.taken != kind.python for _, kind in self.columns)

"""jax.monitoring's names: events, durations, spans of time and numbers that programs report, and listeners that hear of them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = [
    "clear_event_listeners", "record_event", "record_event_duration_secs", "record_event_time_span", "record_scalar",
    "register_event_duration_secs_listener", "register_event_listener", "register_event_time_span_listener",
    "register_scalar_listener", "unregister_event_duration_listener", "unregister_event_listener",
    "unregister_event_time_span_listener", "unregister_scalar_listener",
]  # fmt: skip

Listener = Callable[..., None]

_events: list[Listener] = []
_durations: list[Listener] = []
_spans: list[Listener] = []
_scalars: list[Listener] = []


def record_event(event: str, **kwargs: str | int) -> None:
    """Tell the listeners of events: `listener(event, **kwargs)`."""
    for listener in _events:
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Tell the listeners of durations, in seconds: `listener(event, duration, **kwargs)`."""
    for listener in _durations:
        listener(event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: str | int) -> None:
    """Tell the listeners of spans, in seconds: `listener(event, start_time, end_time, **kwargs)`."""
    for listener in _spans:
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Tell the listeners of numbers: `listener(event, value, **kwargs)`."""
    for listener in _scalars:
        listener(event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Have `callback` told of events."""
    _events.append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Have `callback` told of durations."""
    _durations.append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Have `callback` told of spans of time."""
    _spans.append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Have `callback` told of numbers."""
    _scalars.append(callback)


def _remove(listeners: list[Listener], callback: Listener) -> None:
    assert callback in listeners, "this listener was not registered"
    listeners.remove(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Tell it no more of events. AssertionError for one that is not registered."""
    _remove(_events, callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Tell it no more of durations. AssertionError for one that is not registered."""
    _remove(_durations, callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Tell it no more of spans of time. AssertionError for one that is not registered."""
    _remove(_spans, callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Tell it no more of numbers. AssertionError for one that is not registered."""
    _remove(_scalars, callback)


def clear_event_listeners() -> None:
    """Forget all listeners."""
    for listeners in (_events, _durations, _spans, _scalars):
        listeners.clear()

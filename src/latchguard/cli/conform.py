"""`latchguard conform`: hold a kernel, in any language, against the laws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from latchguard.cli.status import Status
from latchguard.core.errors import InvalidValueError

if TYPE_CHECKING:
    from latchguard.testing.checking import Conformance
    from latchguard.testing.protocol import Kernel

__all__ = ["conform_command"]


@click.command("conform")
@click.argument("kernel")
@click.option("--runs", type=click.IntRange(min=1), default=300, show_default=True, help="How many random runs.")
@click.option("--steps", type=click.IntRange(min=1), default=40, show_default=True, help="How many turns a run has.")
@click.option("--seed", type=click.IntRange(min=0), help="Where to start from; a failure names its seed.")
@click.option("--timeout", "timeout_s", type=float, default=5.0, show_default=True, help="Seconds for each answer.")
@click.option(
    "--trace-dir", type=click.Path(path_type=Path, file_okay=False), help="Write the trace of a failure here."
)
@click.option(
    "--replay",
    "traces",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Run this trace instead of random runs; may be given several times.",
)
@click.option("--small-scope", is_flag=True, help="Try every history of at most 4 messages too.")
def conform_command(  # noqa: PLR0913  # click passes an option an argument
    kernel: str,
    runs: int,
    steps: int,
    seed: int | None,
    timeout_s: float,
    trace_dir: Path | None,
    traces: tuple[Path, ...],
    *,
    small_scope: bool,
) -> Status:
    """Hold KERNEL against the laws of a context kernel.

    KERNEL is stdio:"node kernel.js" for a command that speaks the protocol, or python:package.module:factory.
    docs/harness.md is the page of the protocol.

    Exit status: 0 it conforms, 1 it breaks a law (the shortest run that shows it is printed), 4 it does not speak the
    protocol, 2 no such kernel or options.
    """
    try:
        from latchguard.testing import checking, errors, specs  # noqa: PLC0415  # the extra `testing` is needed here only
    except ImportError as error:
        raise click.UsageError(f"conform needs the extra: pip install 'latchguard[testing]' ({error})") from error
    try:
        under_test = specs.make_kernel(kernel, timeout_s)
        if traces:
            return _replay(under_test, traces)
        if small_scope:
            from latchguard.testing.scope import check_small_scope  # noqa: PLC0415  # likewise

            click.echo(f"small scope: {check_small_scope(under_test)} histories")
        click.echo(_summary(checking.check_kernel(under_test, runs, steps, seed, trace_dir)))
    except InvalidValueError as error:
        raise click.UsageError(str(error)) from error
    except errors.TraceError as error:
        raise click.UsageError(str(error)) from error
    except errors.ProtocolError as error:
        click.echo(f"latchguard: {error}", err=True)
        return Status.PROTOCOL
    except checking.NonConformanceError as error:
        click.echo(str(error))
        return Status.FINDINGS
    return Status.CLEAN


def _replay(kernel: Kernel, traces: tuple[Path, ...]) -> Status:
    from latchguard.testing.checking import check_trace  # noqa: PLC0415  # the extra `testing` is there

    try:
        for path in traces:
            done = check_trace(kernel, path)
            click.echo(f"{path.name}: {'keeps every law' if done else 'not run: it needs what is not declared'}")
    finally:
        if close := getattr(kernel, "close", None):
            close()
    return Status.CLEAN


def _summary(result: Conformance) -> str:
    lines = [f"conforms: {result.runs} runs, {result.steps} steps, {result.seconds:.1f} s, seed {result.seed}"]
    lines += [f"  {count:5} runs: {name}" for name, count in sorted(result.events.items())]
    lines += [f"  not checked: {text}" for text in result.unchecked]
    return "\n".join(lines)

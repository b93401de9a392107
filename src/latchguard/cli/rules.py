"""`latchguard rules` and `latchguard explain`: the catalogue on the terminal."""

from __future__ import annotations

import click

from latchguard.catalogue import RULES, explain_error, find_rule, render_page
from latchguard.cli.status import Status
from latchguard.core.errors import cut
from latchguard.core.findings import Rule
from latchguard.egress.profiles import PROFILES

__all__ = ["explain_command", "rules_command"]


@click.command("rules", short_help="List the rules, or the profiles.")
@click.option("--profiles", is_flag=True, help="List the profiles and their demands instead.")
@click.option("--markdown", is_flag=True, help="Print the whole catalogue as the page docs/rules.md.")
def rules_command(*, profiles: bool, markdown: bool) -> Status:
    """List the rules: slug, dearest repair, wires, and the demand that switches it on."""
    if markdown:
        click.echo(render_page(), nl=False)
    elif profiles:
        for name, demands in PROFILES.items():
            click.echo(f"{name:<24} {', '.join(f'{demand.name}={demand.value}' for demand in demands)}".rstrip())
    else:
        for rule in RULES:
            click.echo(f"{rule.slug:<36} {rule.repair:<12} {','.join(rule.wires):<48} {rule.demand or ''}".rstrip())
    return Status.CLEAN


@click.command("explain", short_help="Explain a rule, or a provider's error.")
@click.argument("what")
def explain_command(what: str) -> Status:
    """Explain a rule, or name the rules behind the text of a provider's error, the most likely first.

    Exit status: 0 explained, 1 no rule is known for it.
    """
    rule = find_rule(what)
    rules = [rule] if rule else explain_error(what)
    if not rules:
        click.echo(f"no rule of latchguard is known to stand behind {cut(what)}", err=True)
        return Status.FINDINGS
    click.echo("\n\n".join(map(_describe, rules)))
    return Status.CLEAN


def _describe(rule: Rule) -> str:
    demand = f"; fires only where a profile demands {rule.demand}" if rule.demand else ""
    wires = ", ".join(rule.wires) or "no wire"
    return f"{rule.slug} ({rule.area}; {wires}; dearest repair: {rule.repair}{demand})\n\n{rule.doc}"

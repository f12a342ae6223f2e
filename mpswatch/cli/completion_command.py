"""`mpswatch completion bash|zsh`."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script: `eval "$(mpswatch completion bash)"` in ~/.bashrc."""
    kind = get_completion_class(shell)
    if kind is None:  # click knows both
        raise click.UsageError(f"no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "mpswatch", "_MPSWATCH_COMPLETE")
    # bash's own source() runs bash to ask its version: nothing that this command needs
    click.echo(ShellComplete.source(script))

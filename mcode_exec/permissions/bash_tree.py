"""Walks tree-sitter's tree of a bash script and lists its simple commands.

Tree-sitter is imported here and in the modules this one is made of (bash_*,
variables), and only for scripts that are not plain words.  Invariant: every command that bash would run is
listed, or `unparsed` says why that is not certain.  Where tree-sitter's grammar
reads a script otherwise than bash does (line continuations, words behind a
redirection, backquotes, unusual white space) it is corrected or given up here.

Leaves to others: looking through wrappers and nested scripts (wrappers.py).
"""

from __future__ import annotations

from tree_sitter import Node

from mcode_exec.permissions import quoting
from mcode_exec.permissions.bash_evaluation import evaluates, substitutions
from mcode_exec.permissions.bash_grammar import Source
from mcode_exec.permissions.bash_redirections import RedirectionReader, Stdin
from mcode_exec.permissions.bash_words import SCOPES, WordReader
from mcode_exec.permissions.directories import after_cd, either, listed_below
from mcode_exec.permissions.script import Redirect, Simple, Word, literal
from mcode_exec.permissions.tampering import tampers
from mcode_exec.permissions.variables import Candidates, Variables, assigned_in
from mcode_exec.permissions.vocabulary import names

_DEEPEST = 60  # levels of nesting; each costs a few Python frames

_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_HEREDOC_PARTS = _REDIRECTS | {"heredoc_start", "heredoc_body", "heredoc_end", "file_descriptor"}
_CHAINS = frozenset({"list", "pipeline", "negated_command"})
#: words that are no commands where they stand unquoted
_GRAMMAR = names("if then else elif fi do done case esac while until for select in function { } !")
_LOOPS = frozenset({"for_statement", "while_statement", "c_style_for_statement"})
_BRANCHES = frozenset({"if_statement", "case_statement"})
_CLAUSES = frozenset({"elif_clause", "else_clause", "case_item"})

_NO_STDIN = Stdin()


class Walker:
    """One pass over one script."""

    def __init__(
        self, script: str, home: str | None, directories: tuple[str, ...], temp_dir: str | None = None
    ) -> None:
        self.commands: list[Simple] = []
        self.redirects: list[Redirect] = []
        #: scripts in backquotes, to be parsed by the caller
        self.nested: list[str] = []
        self.unparsed: list[str] = []
        #: literal texts with substitutions, which run if they are evaluated later
        self.dormant: list[Word] = []
        self.tampered: set[str] = set()
        self._home = home
        self.variables = Variables(
            {name: literal(value) for name, value in (("HOME", home), ("TMPDIR", temp_dir)) if value}
        )
        self._source = Source(script)
        self._words = WordReader(home, temp_dir, self, self._source)
        self._redirections = RedirectionReader(self._words, self, self._source)
        self.directories = directories
        self._earlier_directories: tuple[str, ...] = ()
        self._after_cd: tuple[str, ...] | None = None
        self._loops = 0
        self._depth = 0
        #: redirections that the grammar hangs above the node they are meant for, by its id
        self._redirects_of: dict[int, list[Node]] = {}

    def walk(self) -> None:
        root = self._source.root
        if root.has_error or self._source.loses_text():
            self.unparsed.append("its syntax is not understood")
        if self._source.has_unusual_white_space():
            self.unparsed.append("it has unusual white space outside of quotes")
        self.visit(root, Stdin())
        if self.dormant and evaluates(root, self._source.text, self.commands):
            self._wake()

    def _wake(self) -> None:
        for text in dict.fromkeys(self.dormant):
            scripts = substitutions(text)
            if scripts is None:
                self.unparsed.append("a text that it evaluates is not understood")
            self.nested.extend(scripts or ())

    def visit(self, node: Node, stdin: Stdin = _NO_STDIN) -> None:
        if self._depth >= _DEEPEST:
            self.unparsed.append("it is nested too deeply")
            return
        self._depth += 1
        try:
            self._dispatch(node, stdin)
        finally:
            self._depth -= 1

    def _dispatch(self, node: Node, stdin: Stdin) -> None:
        redirects = self._redirects_of.pop(node.id, None)
        if redirects:
            self._with_redirects(node, redirects, stdin)
            return
        kind = node.type
        if kind == "command":
            self._command(node, stdin)
        elif kind in ("declaration_command", "unset_command"):
            self._declaration(node)
        elif kind == "test_command":
            self._test(node)
        elif kind == "redirected_statement":
            self._redirected(node, stdin)
        elif kind == "pipeline":
            self._pipeline(node, stdin)
        elif kind == "list":
            self._list(node, stdin)
        elif kind in SCOPES:
            self._scope(node, stdin)
        elif kind in _LOOPS:
            self._loop(node, stdin)
        elif kind in _BRANCHES:
            self._branches(node, stdin)
        elif kind == "function_definition":
            self.variables.may_hold(assigned_in(node, self._source.text))
            self.visit_children(node, stdin)
            self.variables.may_hold(assigned_in(node, self._source.text))
        elif kind == "variable_assignment":
            self._assignment(node)
        elif kind == "file_redirect" or kind in ("heredoc_redirect", "herestring_redirect"):
            self._redirections.read(node, stdin, [])
        elif kind == "comment":
            self._check_comment(node)
        elif node.child_count:
            self.visit_children(node, stdin)
        else:
            self.visit_leaf(node)

    def visit_children(self, node: Node, stdin: Stdin = _NO_STDIN) -> None:
        for child in node.children:
            self.visit(child, stdin)

    def visit_leaf(self, node: Node) -> None:
        if node.type in ("raw_string", "ansi_c_string"):
            self._words.read(node)
        if node.type in ("word", "heredoc_content", "heredoc_body", "string_content", "regex"):
            text = self._source.text(node)
            if quoting.has_backquote(text) or "$(" in text:
                self.unparsed.append("a substitution in it is not understood")

    def _check_comment(self, node: Node) -> None:
        if not self._source.starts_a_word(node):
            self.unparsed.append("a comment in it is not understood")

    # -- what may run, or may not ------------------------------------------------------------------------------

    def _loop(self, node: Node, stdin: Stdin) -> None:
        self._loops += 1
        # a later round sees what an earlier one has assigned
        self.variables.may_hold(assigned_in(node, self._source.text))
        values: list[Word] = []
        name = ""
        for child in node.children:
            if child.type == "variable_name":
                name = self._source.text(child)
                if tampers(name, quoting.unknown("")):
                    self.tampered.add(name)
            elif child.type == "do_group":
                if name:
                    self.variables.assign_any(name, tuple(values) or (quoting.unknown(f"${name}"),))
                self.visit(child, stdin)
            elif name and child.is_named:
                outer, self._words.open = self._words.open, {}
                values += self._words.read_all(child)
                for candidates in self._words.open.values():
                    values += candidates
                self._words.open = outer
            else:
                self.visit(child, stdin)
        self._loops -= 1

    def _branches(self, node: Node, stdin: Stdin) -> None:
        """Each branch starts from what was true before it; afterwards any of them may have run."""
        before = self.variables.snapshot()
        ends: list[dict[str, Candidates]] = []
        for child in node.children:
            if child.type in _CLAUSES:
                ends.append(self.variables.snapshot())
                self.variables.restore(before)
            self.visit(child, stdin)
        for end in (*ends, before):
            self.variables.merge(end)

    # -- commands -----------------------------------------------------------------------------------------------

    def _command(self, node: Node, stdin: Stdin, more_words: tuple[Word, ...] = ()) -> None:
        """One command, once for each value that what it names may have."""
        outer, self._words.open = self._words.open, {}
        self._command_once(node, stdin, more_words)
        after = [self._after_cd]
        for _ in self._words.further_readings():
            self._command_once(node, stdin, more_words)
            after.append(self._after_cd)
        self._words.open = outer
        if len(after) > 1 and after[0] is not None:
            self._after_cd = tuple(dict.fromkeys(path for paths in after for path in paths or ()))
            if not all(after):
                self._after_cd = ()

    def _command_once(self, node: Node, stdin: Stdin, more_words: tuple[Word, ...]) -> None:
        first = len(self.commands)
        words: list[Word] = []
        lines = [words]
        prefix: list[Word] = []
        tampered: list[str] = []
        end = -1
        for child in node.children:
            if child.type in _REDIRECTS:
                stdin = self._redirections.read(child, stdin, words)
                end = -1
            elif child.type == "variable_assignment":
                name, value = self._assigned(child)
                prefix.append(quoting.joined([literal(name + "="), value]))
                if tampers(name, value):
                    tampered.append(name)
            elif child.type == "comment":
                self._check_comment(child)
            elif child.type == "command_name" and self._source.text(child) in _GRAMMAR:
                # The grammar lost its way; what follows is a command all the same.
                self.unparsed.append("its syntax is not understood")
            else:
                gap = self._gap(end, child.start_byte)
                if "\n" in gap:
                    self.unparsed.append("its line ends are not understood")
                    words = []
                    lines.append(words)
                read = self._words.read_all(child)
                if words and not gap and read:
                    read[0] = quoting.joined([words.pop(), read[0]])
                words.extend(read)
                end = child.end_byte
        words.extend(more_words)
        substitutes = frozenset(_names(self.commands[first:]))
        for line in lines:
            self._emit(
                Simple(
                    words=tuple(line),
                    prefix=tuple(prefix),
                    tampered=tuple(tampered),
                    piped_from=stdin.piped_from,
                    substitutes=substitutes,
                    directories=self.directories,
                    stdin=stdin.kind,
                    stdin_lists=stdin.lists,
                )
            )

    def _emit(self, command: Simple) -> None:
        self.commands.append(command)
        self._after_cd = None
        words = command.words
        while words and words[0].text in ("command", "builtin"):
            words = words[1:]
        if words and words[0].text in ("cd", "pushd", "popd"):
            self._change_directory(command, words[1:])
        self.variables.after(command)

    def _change_directory(self, command: Simple, arguments: tuple[Word, ...]) -> None:
        after = after_cd(self.directories, command, arguments, home=self._home, in_loop=self._loops > 0)
        self._after_cd = after
        self._earlier_directories = self.directories
        self.directories = either(self.directories, after) if after else ()

    @property
    def shell_variables(self) -> dict[str, Candidates]:
        """Directories as variables of the shell's own."""
        return {
            f"{opening}{name}{closing}": tuple(literal(path) for path in paths)
            for name, paths in (("PWD", self.directories), ("OLDPWD", self._earlier_directories))
            for opening, closing in (("$", ""), ("${", "}"))
            if paths
        }

    def _declaration(self, node: Node) -> None:
        first = len(self.commands)
        words: list[Word] = []
        for child in node.children:
            if child.type == "variable_assignment":
                name, value = self._assigned(child)
                self.variables.assign(name, value, appends=_appends(child))
                if tampers(name, value):
                    self.tampered.add(name)
                words.append(quoting.joined([literal(name + "="), value]))
            elif child.is_named or not words:
                words.append(self._words.read(child))
        substitutes = frozenset(_names(self.commands[first:]))
        self._emit(Simple(words=tuple(words), substitutes=substitutes, directories=self.directories))

    def _test(self, node: Node) -> None:
        self.visit_children(node, Stdin())
        opening, _, rest = self._source.text(node).partition(" ")
        inside = " ".join(rest.split())
        is_known = "$" not in inside and "`" not in inside
        rest_word = literal(inside) if is_known else quoting.unknown(inside)
        self._emit(Simple(words=(literal(opening), rest_word), directories=self.directories))

    def _assignment(self, node: Node) -> None:
        name, value = self._assigned(node)
        self.variables.assign(name, value, appends=_appends(node))
        if tampers(name, value):
            self.tampered.add(name)

    def _assigned(self, node: Node) -> tuple[str, Word]:
        target, *rest = node.children
        if target.type != "variable_name":
            self.visit(target, Stdin())
        values = [child for child in rest if child.type not in ("=", "+=")]
        value = self._words.read(values[0]) if values else literal("")
        return self._source.text(target), value

    # -- structure ----------------------------------------------------------------------------------------------

    def _pipeline(self, node: Node, stdin: Stdin) -> None:
        for child in node.children:
            if not child.is_named:
                continue
            first = len(self.commands)
            before = self.variables.snapshot()
            self.visit(child, stdin)
            self.variables.restore(before)  # each runs in a shell of its own
            told = self.commands[first:]
            stdin = Stdin("stream", stdin.piped_from | frozenset(_names(told)), listed_below(told))

    def _list(self, node: Node, stdin: Stdin) -> None:
        chain: list[Node] = []
        while node.type == "list" and node.child_count and len(chain) < 2_000:
            chain.append(node)
            node = node.children[0]
        self._after_cd = None
        self.visit(node, stdin)
        before = self.variables.snapshot()
        for outer in reversed(chain):
            self._rest_of_list(outer, stdin)
        self.variables.merge(before)

    def _rest_of_list(self, node: Node, stdin: Stdin) -> None:
        """The right side of `&&` runs only where a `cd` on its left worked."""
        is_and = any(child.type == "&&" for child in node.children)
        before = self.directories
        moved = self._after_cd if is_and else None
        if moved:
            self.directories = moved
        self._after_cd = None
        before_values = self.variables.snapshot()
        for child in node.children[1:]:
            self.visit(child, stdin)
        if not is_and:
            self.variables.merge(before_values)
        if moved:
            self._after_cd = self._after_cd or (moved if self.directories == moved else None)
            self.directories = either(before, self.directories)

    def _scope(self, node: Node, stdin: Stdin) -> None:
        saved = (self.directories, self._loops, self._after_cd)
        values = self.variables.snapshot()
        self._loops = 0
        if node.type == "command_substitution" and self._source.text(node).lstrip().startswith("`"):
            self.nested.append(quoting.backquoted(self._source.text(node).strip()[1:-1]))
        else:
            self.visit_children(node, stdin if node.type == "subshell" else Stdin())
        self.directories, self._loops, self._after_cd = saved
        self.variables.restore(values)

    def _redirected(self, node: Node, stdin: Stdin) -> None:
        """The grammar hangs `a && b > f` on the whole list; bash redirects its last command."""
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        bodies = [child for child in node.children if child.type not in _REDIRECTS]
        if not bodies:
            self._with_redirects(None, redirects, stdin)
            return
        target = bodies[-1]
        while target.type in _CHAINS and target.named_children:
            target = target.named_children[-1]
        self._redirects_of[target.id] = [*self._redirects_of.get(target.id, []), *redirects]
        for body in bodies:
            self.visit(body, stdin)

    def _with_redirects(self, body: Node | None, redirects: list[Node], stdin: Stdin) -> None:
        first = len(self.commands)
        late_words: list[Word] = []
        for redirect in redirects:
            stdin = self._redirections.read(redirect, stdin, late_words)
        inside = self.commands[first:]
        if body is not None and body.type == "command":
            self._command(body, stdin, tuple(late_words))
            if inside:
                self.commands[-1] = _substituting(self.commands[-1], inside)
        else:
            if late_words:
                self.unparsed.append("words behind a redirection are not understood")
            if body is not None:
                self._dispatch(body, stdin)
        for redirect in redirects:
            programs = stdin.piped_from | frozenset(_names(self.commands[first:]))
            self._after_heredoc(redirect, programs, stdin)

    def _after_heredoc(self, node: Node, programs: frozenset[str], stdin: Stdin) -> None:
        """`cat <<E | sh` and `cat <<E && rm x`: the grammar puts what follows into the redirection."""
        if node.type != "heredoc_redirect":
            return
        for child in node.children:
            if child.type == "pipeline":
                self._pipeline(
                    child, Stdin(stdin.kind if isinstance(stdin.kind, Word) else "stream", programs)
                )
            elif child.is_named and child.type not in _HEREDOC_PARTS:
                self.visit(child)

    def _gap(self, end: int, start: int) -> str:
        """What stands between two words; without white space, but for line continuations, they are one."""
        return " " if end < 0 else self._source.between(end, start).replace("\\\n", "")


def _appends(assignment: Node) -> bool:
    return any(child.type == "+=" for child in assignment.children)


def _substituting(command: Simple, inside: list[Simple]) -> Simple:
    from msgspec.structs import replace

    return replace(command, substitutes=command.substitutes | frozenset(_names(inside)))


def _names(commands: list[Simple]) -> list[str]:
    """Every word that may name a program: behind wrappers the name is not the first one."""
    return [w.text.rpartition("/")[2] for c in commands for w in c.words[:12] if w.is_literal]

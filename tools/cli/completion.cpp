#include "cli/completion.h"

#include "base/text.h"

namespace gannet::cli {
namespace {

// Quotes text in single quotes for a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char letter : text) out += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return out + "'";
}

std::string names_of_commands(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const CommandInfo& one : command.commands) names.push_back(one.name());
  return join(names, " ");
}

std::string names_of_options(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command.options)
    for (const std::string& name : option.names)
      if (name.starts_with("--") || option.names.size() == 1) names.push_back(name);
  return join(names, " ");
}

// The scripts' keyword for what can complete an option's value: its fixed choices, or a kind that
// the shell itself can complete, such as files.
std::string kind_of(const OptionInfo& option) {
  if (!option.choices.empty()) return "words:" + join(option.choices, " ");
  switch (option.takes) {
    case OptionValueKind::kFile:
      return "files";
    case OptionValueKind::kFolder:
      return "folders";
    case OptionValueKind::kProgram:
      return "programs";
    default:
      return "nothing";
  }
}

// Shell functions, shared by bash and zsh, that print what may follow each command:
//   _gannet_commands PATH, _gannet_options PATH, _gannet_value PATH OPTION, _gannet_positional PATH NUMBER
std::string tables(const CommandInfo& root) {
  std::string commands, options, values, positionals;
  for (const CommandInfo* command : all_of(root)) {
    if (!command->commands.empty())
      commands += "    " + shell_quoted(command->path) + ") echo " + shell_quoted(names_of_commands(*command)) + " ;;\n";
    options += "    " + shell_quoted(command->path) + ") echo " + shell_quoted(names_of_options(*command)) + " ;;\n";
    for (const OptionInfo& option : command->options) {
      if (option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(shell_quoted(command->path + " " + name));
      values += "    " + join(patterns, "|") + ") echo " + shell_quoted(kind_of(option)) + " ;;\n";
    }
    for (size_t i = 0; i < command->positionals.size(); ++i)
      positionals += "    " + shell_quoted(command->path + " " + std::to_string(i)) + ") echo " +
                     shell_quoted(kind_of(command->positionals[i])) + " ;;\n";
  }
  return "_gannet_commands() {\n  case \"$1\" in\n" + commands + "  esac\n}\n_gannet_options() {\n  case \"$1\" in\n" + options +
         "  esac\n}\n# Prints the kind of an option's value; nothing if it takes none.\n_gannet_value() {\n  case \"$1 $2\" "
         "in\n" +
         values + "  esac\n}\n_gannet_positional() {\n  case \"$1 $2\" in\n" + positionals + "  esac\n}\n";
}

constexpr const char* kBashBody = R"sh(
_gannet_fill() {
  case "$1" in
    words:*) COMPREPLY=($(compgen -W "${1#words:}" -- "$2")) ;;
    files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    folders) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    programs) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -c -f -- "$2") ;;
  esac
}

_gannet() {
  local path=gannet word value count=0 i
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  # The words before the cursor: commands lengthen the path, an option takes its value along, the rest is positional.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${COMP_WORDS[i]}"
    if [[ "$word" == -* ]]; then
      [[ "${COMP_WORDS[i+1]}" == = ]] && ((++i))
      if [[ -n "$(_gannet_value "$path" "$word")" ]]; then ((++i)); fi
    elif [[ " $(_gannet_commands "$path") " == *" $word "* ]]; then
      path="$path $word"
    else
      ((++count))
      # After the program come its own arguments.
      if [[ "$(_gannet_positional "$path" 0)" == programs ]]; then
        _gannet_fill files "$cur"
        return
      fi
    fi
  done
  # "--dtype=b" arrives as three words.
  if [[ "$cur" == = ]]; then
    cur=""
  elif [[ "$prev" == = ]]; then
    prev="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  if [[ "$prev" == -* ]]; then
    value="$(_gannet_value "$path" "$prev")"
    if [[ -n "$value" ]]; then
      _gannet_fill "$value" "$cur"
      return
    fi
  fi
  if [[ "$cur" == -* ]]; then
    _gannet_fill "words:$(_gannet_options "$path")" "$cur"
  elif [[ -n "$(_gannet_commands "$path")" ]]; then
    _gannet_fill "words:$(_gannet_commands "$path")" "$cur"
  else
    _gannet_fill "$(_gannet_positional "$path" "$count")" "$cur"
  fi
}
complete -F _gannet gannet
)sh";

constexpr const char* kZshBody = R"sh(
_gannet_fill() {
  case "$1" in
    words:*) compadd -- ${=1#words:} ;;
    files) _files ;;
    folders) _files -/ ;;
    programs) _command_names -e || _files ;;
  esac
}

_gannet() {
  local cmd=gannet word value count=0 i
  local cur="${words[CURRENT]}" prev="${words[CURRENT-1]}"
  for ((i = 2; i < CURRENT; ++i)); do
    word="${words[i]}"
    if [[ "$word" == -*=* ]]; then
      continue
    elif [[ "$word" == -* ]]; then
      if [[ -n "$(_gannet_value "$cmd" "$word")" ]]; then ((++i)); fi
    elif [[ " $(_gannet_commands "$cmd") " == *" $word "* ]]; then
      cmd="$cmd $word"
    else
      ((++count))
      if [[ "$(_gannet_positional "$cmd" 0)" == programs ]]; then
        _gannet_fill files
        return
      fi
    fi
  done
  if [[ "$cur" == -*=* ]]; then
    value="$(_gannet_value "$cmd" "${cur%%=*}")"
    compset -P '*='
    _gannet_fill "$value"
    return
  fi
  if [[ "$prev" == -* ]]; then
    value="$(_gannet_value "$cmd" "$prev")"
    if [[ -n "$value" ]]; then
      _gannet_fill "$value"
      return
    fi
  fi
  if [[ "$cur" == -* ]]; then
    _gannet_fill "words:$(_gannet_options "$cmd")"
  elif [[ -n "$(_gannet_commands "$cmd")" ]]; then
    _gannet_fill "words:$(_gannet_commands "$cmd")"
  else
    _gannet_fill "$(_gannet_positional "$cmd" "$count")"
  fi
}
# Read by compinit from a folder of $fpath, this file is the function; otherwise it is to be named for the command.
if [[ "$funcstack[1]" == _gannet ]]; then
  _gannet "$@"
else
  compdef _gannet gannet
fi
)sh";

constexpr const char* kHead = "# Completion for gannet, generated by `gannet completion` for the commands of that version.\n";

}  // namespace

std::string bash_completion(const CommandInfo& root) { return kHead + tables(root) + kBashBody; }

std::string zsh_completion(const CommandInfo& root) { return std::string("#compdef gannet\n") + kHead + tables(root) + kZshBody; }

std::string fish_completion(const CommandInfo& root) {
  std::string script = std::string(kHead) + R"(function __gannet_at
    # True if the words before the cursor name exactly this command.
    set -l words (commandline -opc)
    set -l named
    set -l commands )";
  std::vector<std::string> words;
  for (const CommandInfo* command : all_of(root))
    if (command != &root) words.push_back(command->name());
  script += join(words, " ") + R"(
    for word in $words[2..-1]
        contains -- $word $commands; or continue
        test (count $named) -ge (count $argv); and break
        set -a named $word
    end
    test "$named" = "$argv"
end
complete -c gannet -f
)";
  for (const CommandInfo* command : all_of(root)) {
    const std::string below = command == &root ? "" : command->path.substr(root.path.size() + 1);
    const std::string here = "complete -c gannet -n " + shell_quoted("__gannet_at " + below);
    // Excludes deeper commands: after `config check`, the commands of `config` are no longer
    // offered.
    for (const CommandInfo& one : command->commands) {
      std::string beside = "__gannet_at " + below;
      for (const CommandInfo& other : command->commands)
        beside += "; and not __gannet_at " + (below.empty() ? "" : below + " ") + other.name();
      script += "complete -c gannet -n " + shell_quoted(beside) + " -a " + one.name() + " -d " + shell_quoted(one.purpose) + "\n";
    }
    for (const OptionInfo& option : command->options) {
      script += here;
      for (const std::string& name : option.names)
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.choices.empty())
        script += " -x -a " + shell_quoted(join(option.choices, " "));
      else if (option.takes == OptionValueKind::kFile)
        script += " -r -F";
      else if (option.takes == OptionValueKind::kFolder)
        script += " -x -a '(__fish_complete_directories)'";
      else if (!option.value.empty())
        script += " -x";
      script += " -d " + shell_quoted(option.meaning) + "\n";
    }
    for (const OptionInfo& positional : command->positionals) {
      if (positional.takes == OptionValueKind::kFile) script += here + " -F\n";
      if (positional.takes == OptionValueKind::kFolder) script += here + " -a '(__fish_complete_directories)'\n";
      if (positional.takes == OptionValueKind::kProgram) script += here + " -F -a '(__fish_complete_command)'\n";
    }
  }
  return script;
}

}  // namespace gannet::cli

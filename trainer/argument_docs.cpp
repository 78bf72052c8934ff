// Renders the argument table as help text, bash completion and Markdown.
#include "argument_table.h"

namespace gannet {
namespace {

using arguments::ArgumentRow;
using arguments::ArgumentState;

std::string default_text(const ArgumentRow& row) { return arguments::shown(row.fallback()); }

constexpr const char* kWorkingHead =
    "A type is in the place of a default that is not set; `--help` has the ranges of numbers.\n\n"
    "| argument | default | meaning |\n|---|---|---|\n";

// The cells of an argument that works, after its name: the default, from which its type is seen, and what it does.
std::string working_cells(const ArgumentRow& row) {
  std::string text = (row.fallback().is_null() ? row.type : "`" + default_text(row) + "`") + " | " + row.meaning;
  if (!row.range.choices.empty()) text += " (" + row.range.text() + ")";
  return text;
}

}  // namespace

std::string training_arguments_help() {
  std::string text = "Arguments of training (a file of them: --arguments FILE, JSON or YAML; completion: --completion bash):\n";
  for (const ArgumentRow& row : arguments::rows()) {
    if (row.state != ArgumentState::kWorks) continue;
    text += "  --" + row.name + (row.type == "boolean" ? "" : " " + row.type) + "\n      " + row.meaning;
    if (const auto range = row.range.text(); !range.empty()) text += " (" + range + ")";
    text += "; default " + default_text(row) + "\n";
  }
  text += "Older spellings:\n";
  for (const auto& former : arguments::formers()) text += "  --" + former.name + ": " + former.meaning + "\n";
  return text;
}

std::string training_arguments_completion(const std::string& program) {
  std::string function = "_gannet_trainer";
  std::string words, cases;
  for (const ArgumentRow& row : arguments::rows()) {
    if (row.state != ArgumentState::kWorks) continue;
    words += " --" + row.name;
    if (!row.range.choices.empty()) {
      cases += "    --" + row.name + ") COMPREPLY=($(compgen -W \"";
      for (size_t i = 0; i < row.range.choices.size(); ++i) cases += (i ? " " : "") + row.range.choices[i];
      cases += "\" -- \"$word\")); return;;\n";
    }
  }
  return function + "() {\n  local word=${COMP_WORDS[COMP_CWORD]}\n  case ${COMP_WORDS[COMP_CWORD-1]} in\n" + cases +
         "  esac\n  [[ $word == -* ]] && COMPREPLY=($(compgen -W \"" + words.substr(1) +
         "\" -- \"$word\"))\n}\ncomplete -o default -F " + function + " " + program + "\n";
}

std::string training_arguments_markdown() {
  std::string text =
      "# Arguments of training\n\n"
      "Names and defaults are those of transformers 5; [trainer.md](trainer.md) says how they are given.\n"
      "`gannet-training-arguments` writes this page.\n\n";
  for (const ArgumentState state : {ArgumentState::kWorks, ArgumentState::kRefused, ArgumentState::kNoEffect}) {
    text += state == ArgumentState::kWorks ? kWorkingHead
            : state == ArgumentState::kRefused
                ? "\n## Refused\n\nSetting one of these is an error that says this:\n\n| argument | reason |\n|---|---|\n"
                : "\n## Accepted without effect\n\n| argument | why |\n|---|---|\n";
    std::string above;  // the reason of the row above
    for (const ArgumentRow& row : arguments::rows()) {
      if (row.state != state) continue;
      text += "| `" + row.name + "` | " +
              (state == ArgumentState::kWorks ? working_cells(row)
               : row.reason == above          ? "the same"
                                              : row.reason) +
              " |\n";
      above = row.reason;
    }
  }
  text += "\n## Older spellings\n\n";
  for (const auto& former : arguments::formers()) text += "- `" + former.name + "`: " + former.meaning + "\n";
  return text;
}

}  // namespace gannet

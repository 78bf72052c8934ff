// gannet completion SHELL, gannet help: print the command tree as a shell script and as text.
#include <gannet/error.h>

#include <iostream>
#include <memory>

#include "base/format.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/help.h"

namespace gannet::cli {
namespace {

constexpr const char* kCompletionFooter =
    R"(Completes commands, options, fixed choices, files and folders. `cmake --install` puts the scripts where shells look
for them; without an installation:

Examples:
  source <(gannet completion bash)                          # in ~/.bashrc
  gannet completion zsh > ~/.zfunc/_gannet                  # a folder of $fpath, before compinit
  gannet completion fish > ~/.config/fish/completions/gannet.fish)";

constexpr const char* kHelpFooter =
    R"(Examples:
  gannet help config check
  gannet help --man | man -l -)";

}  // namespace

void add_shell(CLI::App& app) {
  auto* completion = app.add_subcommand("completion", "Print a script that completes gannet in a shell");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "the shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(kCompletionFooter);
  completion->callback([&app, shell] {
    const CommandInfo root = describe(app, "gannet");
    std::cout << (*shell == "bash" ? bash_completion(root) : *shell == "zsh" ? zsh_completion(root) : fish_completion(root));
  });

  auto* help = app.add_subcommand("help", "Print the help of a command, or the manual page of all of them");
  auto words = std::make_shared<std::vector<std::string>>();
  auto man = std::make_shared<bool>(false);
  help->add_option("COMMAND", *words, "a command, as it is written after gannet: config check");
  help->add_flag("--man", *man, "the whole manual page, for man(1)");
  help->footer(kHelpFooter);
  help->callback([&app, words, man] {
    const CommandInfo root = describe(app, "gannet");
    if (*man) {
      std::cout << man_page(root, GANNET_VERSION);
      return;
    }
    const std::string wanted = join(*words, " ");
    std::vector<std::string> paths;
    for (const CommandInfo* command : all_of(root)) {
      if (command->path == (wanted.empty() ? "gannet" : formatted("gannet {}", wanted))) {
        std::cout << help_text(*command);
        return;
      }
      if (command != &root) paths.push_back(command->path.substr(root.path.size() + 1));
    }
    throw Error(ErrorCode::kArgument, formatted("there is no command 'gannet {}'{}", wanted, did_you_mean(wanted, paths)),
                "`gannet help` lists them");
  });
}

}  // namespace gannet::cli

// The commands below `gannet plugins` that the program gannet-kit runs, since they need no LibTorch. They are declared once:
// gannet-tools describes them in help and completion, gannet-kit parses and runs them, and the front knows by the table which
// program to start.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string_view>

#include "kit/options.h"

namespace gannet::cli {

// A new one is a name here and its options in add_kit_commands().
inline constexpr std::array<std::string_view, 3> kKitCommands = {"check", "new", "trust"};

// What runs them; those of a program that only describes them are null. Each returns the exit code.
struct KitRunners {
  int (*check)(const kit::CheckOptions&) = nullptr;
  int (*new_plugin)(const kit::NewOptions&) = nullptr;
  int (*trust)(const kit::TrustOptions&) = nullptr;
};
void add_kit_commands(CLI::App& plugins, const KitRunners& runners);

}  // namespace gannet::cli

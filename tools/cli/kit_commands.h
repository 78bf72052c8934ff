// The `gannet plugins` commands that gannet-kit runs, since they need no LibTorch. They are
// declared once: gannet-tools describes them in help and completion, gannet-kit parses and runs
// them, and front.cpp uses the table to choose the program.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string_view>

#include "kit/options.h"

namespace gannet::cli {

// To add a command, add its name here and its options in add_kit_commands().
inline constexpr std::array<std::string_view, 4> kKitCommands = {"check", "bench", "new", "trust"};

// The functions that run the commands; null in a program that only describes them. Each returns the
// exit code.
struct KitRunners {
  int (*check)(const kit::CheckOptions&) = nullptr;
  int (*bench)(const kit::BenchOptions&) = nullptr;
  int (*new_plugin)(const kit::NewOptions&) = nullptr;
  int (*trust)(const kit::TrustOptions&) = nullptr;
};
void add_kit_commands(CLI::App& plugins, const KitRunners& runners);

}  // namespace gannet::cli

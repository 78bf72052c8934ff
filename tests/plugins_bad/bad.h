// A plugin without fault, in parts: each bad one replaces a single part.
#pragma once

#include <gannet/sdk.hpp>

namespace bad {

using namespace gannet::sdk;

struct Good : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {dynamic_number("lr", "1e-3", "learning rate")};
  using OptimizerBase::OptimizerBase;
  void update(const gannet_update_args&) {}
};

constexpr gannet_descriptor good_descriptor() { return optimizer<Good>("Bad", "cpu", "1.0", "an optimizer with a fault"); }
constexpr gannet_elf_note good_note() { return detail::make_note(GANNET_TIER_STABLE, "", "optimizer/bad@cpu"); }

}  // namespace bad

#define BAD_NOTE(value) \
  __attribute__((section(GANNET_NOTE_SECTION), used, aligned(8))) static constexpr gannet_elf_note gannet_note_ = value
#define BAD_TABLE(value)                                                                                      \
  static constexpr gannet_descriptor gannet_descriptors_[] = {value};                                         \
  extern "C" {                                                                                                \
  __attribute__((visibility("default"))) extern const gannet::sdk::detail::Table<1> gannet_plugins_v1;        \
  const gannet::sdk::detail::Table<1> gannet_plugins_v1 = gannet::sdk::detail::table_of(gannet_descriptors_); \
  }

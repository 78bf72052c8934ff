#include "activation/surroundings.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <mutex>

namespace gannet::activation {
namespace {

// The tracker never writes into a state tensor, so a changed state is a different tensor.
bool are_same(const checkpointing::RngTracker::States& a, const checkpointing::RngTracker::States& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first &&
           std::equal(one.second.begin(), one.second.end(), other.second.begin(), other.second.end(),
                      [](const auto& x, const auto& y) { return x.first == y.first && x.second.is_same(y.second); });
  });
}

std::recursive_mutex& random_mutex() {
  static auto* const forever = new std::recursive_mutex;
  return *forever;
}

}  // namespace

std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

Surroundings::Surroundings(const std::vector<at::Device>& devices, bool has_rng) {
  add_autocast(at::kCPU);
  if (has_rng) streams_ = checkpointing::rng_tracker().get_states();
  if (has_rng) add(at::globalContext().defaultGenerator(at::Device(at::kCPU)));
  for (const at::Device& device : devices) {
    if (device.is_cpu()) continue;
    add_autocast(device.type());
    if (has_rng && !device.is_meta()) add(at::globalContext().defaultGenerator(device));
  }
}

void Surroundings::keep_what_was_drawn_from(std::vector<GeneratorSnapshot> others) {
  const Surroundings after = now();
  std::vector<GeneratorSnapshot> drawn;
  for (size_t i = 0; i < random_.size(); ++i)
    if (!at::equal(random_[i].state, after.random_[i].state)) drawn.push_back(random_[i]);
  for (GeneratorSnapshot& other : others)
    if (std::none_of(random_.begin(), random_.end(),
                     [&](const GeneratorSnapshot& one) { return one.generator == other.generator; }))
      drawn.push_back(std::move(other));
  random_ = std::move(drawn);
  if (streams_ && are_same(*streams_, *after.streams_)) streams_.reset();
}

void Surroundings::add(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  random_.push_back({generator, state});
}

void Surroundings::add_autocast(at::DeviceType device) {
  // Device types that LibTorch's autocast supports and Gannet has accelerators for.
  if ((device != at::kCPU && device != at::kCUDA) ||
      std::any_of(autocast_.begin(), autocast_.end(), [&](const Autocast& known) { return known.device == device; }))
    return;
  autocast_.push_back({device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
}

Surroundings Surroundings::now() const {
  Surroundings now;
  for (const GeneratorSnapshot& one : random_) now.add(one.generator);
  if (streams_) now.streams_ = checkpointing::rng_tracker().get_states();
  for (const Autocast& one : autocast_) now.add_autocast(one.device);
  return now;
}

void Surroundings::put_in_place() const {
  for (const GeneratorSnapshot& one : random_) {
    at::Generator generator = one.generator;
    const std::lock_guard lock(generator.mutex());
    generator.set_state(one.state);
  }
  if (streams_) checkpointing::rng_tracker().set_states(*streams_);
  for (const Autocast& one : autocast_) {
    at::autocast::set_autocast_enabled(one.device, one.enabled);
    at::autocast::set_autocast_dtype(one.device, one.dtype);
  }
}

SurroundingsScope::SurroundingsScope(const Surroundings& wanted)
    : alone_(wanted.has_random() ? std::unique_lock(random_mutex()) : std::unique_lock<std::recursive_mutex>()),
      before_(wanted.now()),
      caches_casts_(at::autocast::is_autocast_cache_enabled()) {
  wanted.put_in_place();
  at::autocast::set_autocast_cache_enabled(false);  // weights cast in the recomputation are of no use to the forward
}

SurroundingsScope::~SurroundingsScope() {
  before_.put_in_place();
  at::autocast::set_autocast_cache_enabled(caches_casts_);
}

}  // namespace gannet::activation

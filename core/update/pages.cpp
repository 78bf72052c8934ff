#include "update/pages.h"

#include <algorithm>

#include "params/pieces.h"
#include "tensor/flat_buffer.h"

namespace gannet {

Pages::Pages(std::vector<ArrayUse> uses, int64_t numel, Options options, std::vector<at::Tensor>& spare, Timers& timers)
    : uses_(std::move(uses)), options_(options), spare_(spare), timers_(timers) {
  const bool is_paged = std::any_of(uses_.begin(), uses_.end(), [](const ArrayUse& use) { return !use.array->is_here(); });
  if (!is_paged) options_.ends.assign(numel > 0 ? 1 : 0, numel);
  int64_t begin = 0;
  largest_ = options_.page_numel;
  for (const int64_t end : options_.ends) {
    Page& page = pages_.emplace_back();
    page.begin = begin;
    page.numel = end - begin;
    largest_ = std::max(largest_, (page.numel + kPageGranularity - 1) / kPageGranularity * kPageGranularity);
    begin = end;
  }
}

Pages::~Pages() {
  for (; settled_ < fetched_; ++settled_) {  // after an exception: waits for reads and writes before the buffers are returned
    Page& page = pages_[settled_];
    page.coming.clear();
    page.going.clear();
    for (auto& memory : page.memory)
      if (memory.defined()) spare_.push_back(std::move(memory));
  }
}

void Pages::fetch(size_t index) {
  Page& page = pages_[index];
  page.memory.resize(uses_.size());
  for (size_t u = 0; u < uses_.size(); ++u) {
    const Array& array = *uses_[u].array;
    if (array.is_here()) continue;
    const int64_t bytes = largest_ * static_cast<int64_t>(c10::elementSize(array.dtype()));
    const auto found =
        std::find_if(spare_.begin(), spare_.end(), [&](const at::Tensor& memory) { return memory.numel() == bytes; });
    if (found != spare_.end()) {
      page.memory[u] = std::move(*found);
      spare_.erase(found);
    } else {
      page.memory[u] = allocate_flat(bytes, at::kByte, at::kCPU);
    }
    if (timers_.is_traced()) page.asked = Timers::Clock::now();
    if (uses_[u].reads) page.coming.push_back(array.start_read(page.begin, page.numel, page.memory[u].data_ptr()));
  }
}

// Fetches a page as soon as there is memory for it: before the current page is updated, and while
// earlier ones are written.
void Pages::open(size_t index) {
  open_ = index;
  const size_t ahead = std::min(pages_.size(), index + std::max<size_t>(options_.in_flight / 2, 1) + 1);
  for (; fetched_ < std::max(ahead, index + 1); ++fetched_) {
    while (fetched_ - settled_ >= options_.in_flight && settled_ < index) settle(settled_++);
    if (fetched_ - settled_ >= options_.in_flight && fetched_ > index) break;
    fetch(fetched_);
  }
  if (!pages_[index].coming.empty()) {
    Timers::Wait timed(timers_, TimedPhase::kOffload);
    for (Transfer& transfer : pages_[index].coming) transfer.wait();
  }
  pages_[index].coming.clear();
  trace_transfer("read page ", index, pages_[index].asked);
}

void* Pages::at(size_t use, int64_t element) const {
  const Array& array = *uses_[use].array;
  const auto size = static_cast<int64_t>(c10::elementSize(array.dtype()));
  if (array.is_here()) return static_cast<char*>(array.here().data_ptr()) + element * size;
  const Page& page = pages_[open_];
  return static_cast<char*>(page.memory[use].data_ptr()) + (element - page.begin) * size;
}

void Pages::trace_transfer(const char* what, size_t index, Timers::Clock::time_point& began) const {
  const auto none = Timers::Clock::time_point();
  if (timers_.is_traced() && began != none) {
    int64_t bytes = 0;
    for (const auto& memory : pages_[index].memory)
      if (memory.defined()) bytes += memory.numel();
    timers_.trace->flight("offload", what + std::to_string(index), began, Timers::Clock::now(), bytes);
  }
  began = none;
}

void Pages::close(size_t index) {
  Page& page = pages_[index];
  if (timers_.is_traced()) page.sent = Timers::Clock::now();
  for (size_t u = 0; u < uses_.size(); ++u)
    if (page.memory[u].defined())
      page.going.push_back(uses_[u].array->start_write(page.begin, page.numel, page.memory[u].data_ptr()));
}

void Pages::settle(size_t index) {
  Page& page = pages_[index];
  if (!page.going.empty()) {
    Timers::Wait timed(timers_, TimedPhase::kOffload);
    for (Transfer& transfer : page.going) transfer.wait();
    trace_transfer("write page ", index, page.sent);
  }
  page.going.clear();
  for (auto& memory : page.memory)
    if (memory.defined()) spare_.push_back(std::move(memory));
}

void Pages::finish() {
  while (settled_ < fetched_) settle(settled_++);
}

}  // namespace gannet

#include "engine/pages.h"

#include "tensor/flat_buffer.h"

#include <algorithm>

namespace gannet {

Pages::Pages(std::vector<Use> uses, int64_t numel, Options options, std::vector<at::Tensor>& spare) : uses_(std::move(uses)), options_(options), spare_(spare) {
  const bool is_paged = std::any_of(uses_.begin(), uses_.end(), [](const Use& use) { return !use.array->is_here(); });
  const int64_t size = is_paged ? options_.page_numel : std::max<int64_t>(numel, 1);
  for (int64_t begin = 0; begin < numel; begin += size) {
    Page& page = pages_.emplace_back();
    page.begin = begin;
    page.numel = std::min(size, numel - begin);
  }
}

Pages::~Pages() {
  for (; settled_ < fetched_; ++settled_) {  // after an exception: memory goes back when nothing reads or writes it any more
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
    const int64_t bytes = options_.page_numel * static_cast<int64_t>(c10::elementSize(array.dtype()));
    const auto found = std::find_if(spare_.begin(), spare_.end(), [&](const at::Tensor& memory) { return memory.numel() == bytes; });
    if (found != spare_.end()) {
      page.memory[u] = std::move(*found);
      spare_.erase(found);
    } else {
      page.memory[u] = allocate_flat(bytes, at::kByte, at::kCPU);
    }
    if (uses_[u].reads) page.coming.push_back(array.start_read(page.begin, page.numel, page.memory[u].data_ptr()));
  }
}

// A page is fetched as soon as there is memory for it: before the one in hand is updated, while those before it are written.
void Pages::open(size_t index) {
  open_ = index;
  const size_t ahead = std::min(pages_.size(), index + std::max<size_t>(options_.in_flight / 2, 1) + 1);
  for (; fetched_ < std::max(ahead, index + 1); ++fetched_) {
    while (fetched_ - settled_ >= options_.in_flight && settled_ < index) settle(settled_++);
    if (fetched_ - settled_ >= options_.in_flight && fetched_ > index) break;
    fetch(fetched_);
  }
  for (Transfer& transfer : pages_[index].coming) transfer.wait();
  pages_[index].coming.clear();
}

void* Pages::at(size_t use, int64_t element) const {
  const Array& array = *uses_[use].array;
  const auto size = static_cast<int64_t>(c10::elementSize(array.dtype()));
  if (array.is_here()) return static_cast<char*>(array.here().data_ptr()) + element * size;
  const Page& page = pages_[open_];
  return static_cast<char*>(page.memory[use].data_ptr()) + (element - page.begin) * size;
}

void Pages::close(size_t index) {
  Page& page = pages_[index];
  for (size_t u = 0; u < uses_.size(); ++u)
    if (page.memory[u].defined()) page.going.push_back(uses_[u].array->start_write(page.begin, page.numel, page.memory[u].data_ptr()));
}

void Pages::settle(size_t index) {
  Page& page = pages_[index];
  for (Transfer& transfer : page.going) transfer.wait();
  page.going.clear();
  for (auto& memory : page.memory)
    if (memory.defined()) spare_.push_back(std::move(memory));
}

void Pages::finish() {
  while (settled_ < fetched_) settle(settled_++);
}

}  // namespace gannet

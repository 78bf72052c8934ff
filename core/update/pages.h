// The arrays of an update, one page at a time. Arrays on a tier are read, updated and written back,
// while later pages are read and earlier ones are written.
//
//   Pages pages(arrays, shard_numel, {.ends = page_ends(range, 8 << 20), .in_flight = 4}, spare, timers);
//   for (size_t i = 0; i < pages.count(); ++i) {
//     pages.open(i);                       // now in memory
//     update(pages.at(0, element), ...);   // `element` of array 0, which is in page i
//     pages.close(i);                      // starts to write it back
//   }
//   pages.finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "observe/timers.h"
#include "params/array.h"

namespace gannet {

class Pages {
 public:
  struct ArrayUse {  // how an update uses one array
    const Array* array;
    bool reads = true;  // false: every element is written before it is read
  };
  struct Options {
    // The end of each page, if an array is on a tier: all but the last are multiples of the array's
    // alignment in every dtype. Otherwise there is one page.
    std::vector<int64_t> ends;
    int64_t page_numel = 8 << 20;  // capacity of a page's buffers; raised to fit the longest page
    size_t in_flight = 4;          // the most pages in memory at once: being read, open, or being written
  };
  // `spare`: page buffers that the caller keeps between updates.
  Pages(std::vector<ArrayUse> uses, int64_t numel, Options options, std::vector<at::Tensor>& spare, Timers& timers);
  ~Pages();
  Pages(const Pages&) = delete;

  size_t count() const { return pages_.size(); }
  int64_t begin(size_t page) const { return pages_[page].begin; }
  int64_t end(size_t page) const { return pages_[page].begin + pages_[page].numel; }

  void open(size_t page);
  void* at(size_t use, int64_t element) const;  // the address of an element in the open page
  void close(size_t page);
  void finish();  // waits until everything is written

 private:
  struct Page {
    int64_t begin = 0, numel = 0;
    std::vector<at::Tensor> memory;  // [uses] buffers for the arrays on a tier, while the page is in memory
    std::vector<Transfer> coming, going;
    Timers::Clock::time_point asked{}, sent{};  // when the read and the write began; set only while traced
  };
  void fetch(size_t page);
  void trace_transfer(const char* what, size_t page, Timers::Clock::time_point& began) const;
  void settle(size_t page);  // waits until the page is written; returns its buffers to `spare`

  std::vector<ArrayUse> uses_;
  Options options_;
  std::vector<at::Tensor>& spare_;
  Timers& timers_;
  std::vector<Page> pages_;
  int64_t largest_ = 0;                          // capacity of a page's buffers, in elements
  size_t open_ = 0, fetched_ = 0, settled_ = 0;  // pages [settled_, fetched_) have buffers
};

}  // namespace gannet

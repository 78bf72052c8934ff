// The arrays that an update works on, a page at a time: those on a tier are read, updated and written back while the next pages
// come and the last ones go.
//
//   Pages pages(arrays, own_numel, {.ends = page_ends(range, 8 << 20), .in_flight = 4}, spare, timers);
//   for (size_t i = 0; i < pages.count(); ++i) {
//     pages.open(i);                       // here now
//     update(pages.at(0, element), ...);   // element: of the array, inside page i
//     pages.close(i);                      // goes back
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
  struct Use {  // of one array
    const Array* array;
    bool reads = true;  // else every element is written before it is read
  };
  struct Options {
    // Of the array, where pages end while something is on a tier: multiples of its alignment in every dtype, but for the last;
    // else all is one page.
    std::vector<int64_t> ends;
    int64_t page_numel = 8 << 20;  // what the memory of a page has room for; a longer page gets more
    size_t in_flight = 4;          // pages in memory: coming, in hand and going
  };
  // `spare`: memory for pages, kept by the caller from one update to the next.
  Pages(std::vector<Use> uses, int64_t numel, Options options, std::vector<at::Tensor>& spare, Timers& timers);
  ~Pages();
  Pages(const Pages&) = delete;

  size_t count() const { return pages_.size(); }
  int64_t begin(size_t page) const { return pages_[page].begin; }
  int64_t end(size_t page) const { return pages_[page].begin + pages_[page].numel; }

  void open(size_t page);
  void* at(size_t use, int64_t element) const;  // of the open page
  void close(size_t page);
  void finish();  // until all is written

 private:
  struct Page {
    int64_t begin = 0, numel = 0;
    std::vector<at::Tensor> memory;  // [uses] for those on a tier, while it is here
    std::vector<Transfer> coming, going;
    Timers::Clock::time_point asked{}, sent{};  // while it is traced
  };
  void fetch(size_t page);
  void tell_flight(const char* what, size_t page, Timers::Clock::time_point& began) const;
  void settle(size_t page);  // until it is written; gives its memory back

  std::vector<Use> uses_;
  Options options_;
  std::vector<at::Tensor>& spare_;
  Timers& timers_;
  std::vector<Page> pages_;
  int64_t largest_ = 0;                          // elements that the memory of a page has room for
  size_t open_ = 0, fetched_ = 0, settled_ = 0;  // pages [settled_, fetched_) have memory
};

}  // namespace gannet

// Undoes what a recomputation writes into tensors that were there before it: running statistics, counters, caches. The forward
// has written them once.
//
//   {
//     Undo undo;
//     f(x);                                   // batch norm moves its statistics ...
//   }                                         // ... and has not
//
// Operators of this thread are seen while it lives (params/observer.h). A tensor that was there is copied before an operator
// first writes into it, and gets its values, and its version, back at the end.
#pragma once

#include <memory>
#include <string>

namespace gannet::zero {
class Observing;
}

namespace gannet::activation {

class Undo {
 public:
  Undo();
  ~Undo();
  Undo(const Undo&) = delete;
  /// Of the operator that runs at the moment: "aten::linear"; "" between two.
  std::string current_operator() const;

 private:
  class Writes;
  std::shared_ptr<Writes> writes_;
  std::unique_ptr<zero::Observing> observing_;
};

}  // namespace gannet::activation

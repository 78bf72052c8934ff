// The order in which a stretch of the program uses parameters, as it was the last time: what to gather ahead, and what to keep.
// Numbers only.
//
//   Trace forward(numels), backward(numels);
//   forward.begin();
//   forward.use(3);                          // records, or follows what was recorded
//   forward.distance_to_next_use(3);         // in elements
//   for (size_t place = 0, parameter; forward.upcoming(place, &parameter); ++place) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace gannet::zero {

class Trace {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  explicit Trace(const std::vector<int64_t>* numels) : numels_(numels) {}  // [parameters], which outlive it
  // The stretch that comes after this one: what it uses first is what comes after this one's end. Null: nothing does.
  void set_following(Trace* following) { following_ = following; }

  void forget();  // the parameters are others by now: the order is recorded again
  void begin();   // the pass starts over
  void end();     // what was recorded is the order from now on
  // The next use. False where the recorded order had another one here, or had ended: it is recorded again from here on.
  bool use(size_t parameter);
  // Elements that are used before the parameter is used again; kNever where it is not, or nobody knows.
  int64_t distance_to_next_use(size_t parameter) const;
  // The `place`-th parameter to come, counted from 0; false past the end of what is known.
  bool upcoming(size_t place, size_t* parameter) const;

 private:
  struct Use {
    size_t parameter;
    int64_t before;  // elements used before it, in this stretch
    size_t next;     // the parameter's next use in this stretch, kNone
  };
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  void link();  // fills Use::next and first_

  const std::vector<int64_t>* numels_;
  Trace* following_ = nullptr;
  std::vector<Use> uses_;
  std::vector<size_t> first_;  // [parameters] place of the first use
  std::vector<size_t> last_;   // [parameters] place of the latest use in this run of the stretch
  int64_t total_ = 0;
  size_t place_ = 0;       // how many uses of this run have been
  bool is_known_ = false;  // the order was recorded to its end, and is being followed
};

}  // namespace gannet::zero

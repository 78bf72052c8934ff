// Records the order in which a stretch of the program uses parameters, to decide what to gather
// ahead and what to keep. Works with numbers only, not with tensors.
//
//   Trace forward(numels), backward(numels);
//   forward.begin();
//   forward.use(3);                          // records the use, or follows the recorded order
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

  explicit Trace(const std::vector<int64_t>* numels) : numels_(numels) {}  // [parameters]; must outlive this object
  // Sets the stretch that follows this one: its first uses come after this one's last. Null: none.
  void set_following(Trace* following) { following_ = following; }

  void forget();  // the set of parameters has changed: records the order again
  void begin();   // the pass starts over
  void end();     // the recorded order becomes the known order
  // Records the next use. Returns false if the known order has a different parameter here, or has
  // ended; recording then restarts from here.
  bool use(size_t parameter);
  bool is_known() const { return is_known_; }
  bool is_followed() const { return is_known_ && place_ == uses_.size(); }  // this run made all uses of the known order
  uint64_t hash(uint64_t seed) const;                                       // of the recorded order
  // The number of elements that are used before the next use of the parameter; kNever if there is
  // none or the order is unknown.
  int64_t distance_to_next_use(size_t parameter) const;
  // The `place`-th upcoming parameter, counted from 0. Returns false past the end of the known
  // order.
  bool upcoming(size_t place, size_t* parameter) const;

 private:
  struct ParameterUse {
    size_t parameter;
    int64_t before;  // elements used before it, in this stretch
    size_t next;     // the parameter's next use in this stretch, or kNone
  };
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  void link();  // fills ParameterUse::next and first_

  const std::vector<int64_t>* numels_;
  Trace* following_ = nullptr;
  std::vector<ParameterUse> uses_;
  std::vector<size_t> first_;  // [parameters] position of the first use
  std::vector<size_t> last_;   // [parameters] position of the latest use in this run of the stretch
  int64_t total_ = 0;
  size_t place_ = 0;       // number of uses so far in this run
  bool is_known_ = false;  // the whole order has been recorded and is being followed
};

}  // namespace gannet::zero

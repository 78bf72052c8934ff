// A table without its null: the memory after it is no table.
#include "bad.h"

BAD_NOTE(bad::good_note());
static constexpr gannet_descriptor gannet_descriptors_[] = {bad::good_descriptor()};
extern "C" {
__attribute__((visibility("default"))) extern const gannet_descriptor* const gannet_plugins_v2[1];
const gannet_descriptor* const gannet_plugins_v2[1] = {&gannet_descriptors_[0]};
}

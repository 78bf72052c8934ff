// The checks of an offload tier, by subject; their table is in checks.cpp.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

// data_checks.cpp: reads return what was written.
void align(Subject& subject);
void read_back(Subject& subject);
void begin_with_zeros(Subject& subject);
void be_in_flight_together(Subject& subject);
void keep_regions_apart(Subject& subject);
void take_any_name(Subject& subject);
void tell_the_address(Subject& subject);
void serve_two_objects(Subject& subject);

// failure_checks.cpp: refusals, failures, and what is left behind.
void refuse_ranges(Subject& subject);
void fail_with_a_sentence(Subject& subject);
void survive_host_failures(Subject& subject);
void release_in_flight(Subject& subject);
void leave_no_region(Subject& subject);

}  // namespace gannet::kit

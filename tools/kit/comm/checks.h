// The checks of a Comm, by subject; their table is in checks.cpp.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

// data_checks.cpp: data movement and reductions.
void serve_worlds(Subject& subject);
void move_data(Subject& subject);
void reduce_data(Subject& subject);
void move_uneven_parts(Subject& subject);
void sum_honestly(Subject& subject);

// order_checks.cpp: many collectives, messages, groups.
void keep_messages_in_order(Subject& subject);
void progress_in_a_batch(Subject& subject);
void keep_groups_apart(Subject& subject);

// completion_checks.cpp: query, wait, block, time-outs, abort, a killed rank.
void complete(Subject& subject);
void stay_pending(Subject& subject);
void abort_from_outside(Subject& subject);
void lose_a_peer(Subject& subject);

// table_checks.cpp: the remaining functions of the table.
void count_honestly(Subject& subject);
void use_memory_of_the_plugin(Subject& subject);
void refuse_wrong_arguments(Subject& subject);
void leave_nothing_of_collectives(Subject& subject);
void leave_nothing_of_groups(Subject& subject);

// shape_checks.cpp: longer structs.
void take_longer_structs(Subject& subject);

}  // namespace gannet::kit

// Pictures of a simulated step: a row for each rank, time from left to right.
#pragma once

#include <string>

#include "pipeline/schedule.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {

/// A row of fixed-width cells for each rank. A cell is as long as the shortest action, or longer
/// where the step would take more than 400 cells. An action begins with its text ("2F0") and
/// continues with '-'; idle time is blank. Times that are not multiples of a cell are rounded.
std::string draw_text(const Schedule& schedule, const SimulatedStep& step);

/// A standalone SVG page: a bar for each action, coloured by its kind, with its text where there is
/// room, and with its text, start and end as a tooltip.
std::string draw_svg(const Schedule& schedule, const SimulatedStep& step);

/// "total 27, idle share 11.1%", and a table of idle share and peak by rank.
std::string summary_text(const SimulatedStep& step);

}  // namespace gannet::pipeline

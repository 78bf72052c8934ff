#include "report/timeline.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "report/format.h"

namespace gannet::report {
namespace {

constexpr size_t kMaxBarRows = 6;    // for runs with overlapping steps
constexpr size_t kMaxEventRows = 5;  // kinds of events
constexpr double kApart = 0.0005;    // events that are closer together than this share one mark

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f%%", part * 100);
  return text;
}

std::string row(const std::string& label, const std::string& inside) {
  return "<div class=\"row\"><span>" + html_text(label) + "</span><div class=\"track\"><div>" + inside + "</div></div></div>\n";
}

// The page's script adds the marks.
std::string skips_row(const Records& records) {
  const bool has_skips =
      std::any_of(records.steps.begin(), records.steps.end(), [](const StepRecord& step) { return !step.applied; });
  return has_skips ? row("skipped", "<b id=\"skips\"></b>") : "";
}

std::string strip(const std::string& rows) { return "<div class=\"timeline\" aria-hidden=\"true\">\n" + rows + "</div>\n"; }

// Draws each run's bar in the first row where it does not cover another. `name_of_file` is that of a
// compared run, or "".
std::string run_rows(const Records& records, const Buckets& places, const std::string& label,
                     const std::string& name_of_file = "", const std::string& colour = "") {
  std::vector<std::string> rows;
  std::vector<int64_t> ends;  // the last step in each row
  for (size_t i = 0; i < records.runs.size(); ++i) {
    const RunRecord& run = records.runs[i];
    if (run.steps == 0) continue;
    size_t at = 0;
    while (at < ends.size() && ends[at] >= run.first_step) ++at;
    at = std::min(at, kMaxBarRows - 1);
    if (at >= rows.size()) rows.resize(at + 1), ends.resize(at + 1, -1);
    ends[at] = std::max(ends[at], run.last_step);
    const double left = places.first() == places.last() ? 0 : places.place(static_cast<double>(run.first_step) - 0.5);
    const double right = places.first() == places.last() ? 1 : places.place(static_cast<double>(run.last_step) + 0.5);
    std::string name = "run " + std::to_string(i + 1);
    if (!name_of_file.empty()) name = html_text(name_of_file) + (records.runs.size() > 1 ? ", " + name : "");
    rows[at] += "<i class=\"bar" + colour + (run.left_behind > 0 ? " behind" : "") + "\" style=\"left:" + percent(left) +
                ";width:" + percent(right - left) + "\" title=\"" + name + ": steps " + with_commas(run.first_step) + " to " +
                with_commas(run.last_step) +
                (run.left_behind > 0 ? "; " + plural(run.left_behind, "step") + " left behind by a later run" : "") + "\">" +
                name + "</i>";
  }
  std::string html;
  for (size_t i = 0; i < rows.size(); ++i) html += row(i == 0 ? label : "", rows[i]);
  return html;
}

std::string mark(const std::string& classes, double place, const std::string& title) {
  return "<i class=\"" + classes + "\" style=\"left:" + percent(place) + "\" title=\"" + html_text(title) + "\"></i>";
}

}  // namespace

std::string compared_timeline_html(const Comparison& comparison, const Buckets& places) {
  std::string html;
  for (size_t run = 0; run < comparison.runs().size(); ++run)
    html += run_rows(comparison.runs()[run].records, places, run == 0 ? "runs" : "", comparison.runs()[run].name,
                     " c" + std::to_string(run));
  return strip(html + skips_row(comparison.steps()));
}

std::string timeline_html(const Records& records, const Buckets& places) {
  std::string html = run_rows(records, places, "runs");
  std::vector<std::string> kinds;
  std::map<std::string, std::string> inside;
  std::map<std::string, double> last;
  for (const EventRecord& event : records.events) {
    if (event.what == "skip") continue;  // shown from the step records, which have reasons
    if (std::find(kinds.begin(), kinds.end(), event.what) == kinds.end()) kinds.push_back(event.what);
    const double place = places.place(static_cast<double>(event.step));
    if (last.count(event.what) && place >= last[event.what] && place - last[event.what] < kApart) continue;
    last[event.what] = place;
    inside[event.what] += mark("event", place, "step " + with_commas(event.step) + ": " + event.text);
  }
  for (size_t i = 0; i < std::min(kinds.size(), kMaxEventRows); ++i)
    html += row(kinds[i].empty() ? "events" : kinds[i] == "checkpoint" ? "saved" : kinds[i], inside[kinds[i]]);
  return strip(html + skips_row(records));
}

}  // namespace gannet::report

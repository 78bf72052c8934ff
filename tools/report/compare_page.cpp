// The page of several runs.
#include "report/compare.h"
#include "report/data.h"
#include "report/format.h"
#include "report/page.h"
#include "report/tables.h"
#include "report/timeline.h"

namespace gannet::report {
namespace {

std::string title_of(const Comparison& comparison) {
  std::string title;
  for (const ComparedRun& run : comparison.runs()) title += (title.empty() ? "" : " · ") + run.name;
  return title;
}

// A table of each run that has one, below the run's name.
template <typename TableOf>
std::string tables_by_run(const Comparison& comparison, const TableOf& table_of) {
  std::string html;
  for (size_t run = 0; run < comparison.runs().size(); ++run) {
    const std::string table = table_of(comparison.runs()[run].records);
    if (table.empty()) continue;
    html +=
        "<h3><i class=\"chip c" + std::to_string(run) + "\"></i>" + html_text(comparison.runs()[run].name) + "</h3>\n" + table;
  }
  return html;
}

std::vector<std::string> all_notes(const Comparison& comparison, const Charts& charts) {
  std::vector<std::string> notes;
  for (const ComparedRun& run : comparison.runs())
    for (const std::string& note : run.records.notes) notes.push_back(run.name + ": " + note);
  notes.insert(notes.end(), charts.notes.begin(), charts.notes.end());
  return notes;
}

}  // namespace

std::string Comparison::html() const {
  size_t lines = 0;  // of all charts, about
  for (const ComparedRun& run : runs_) lines += 3 + lines_of(run.records);
  const Buckets places = places_of(steps_.steps, lines);
  const Charts charts = compared_charts(*this, places);

  const std::string config = config_differences(*this);
  std::string tables = section("config", "Config", config.empty() ? "<p>The runs' configs are equal.</p>\n" : config,
                               config.empty() ? "" : small("keys that differ"));
  tables += section("phases", "Phases", phases_by_run(*this));
  tables += section("numbers", "Numbers", numbers_table(charts));
  tables += section("skipped", "Skipped steps", tables_by_run(*this, skipped_table));
  tables += section("events", "Events", tables_by_run(*this, events_table));
  tables += section("runs", "Runs", tables_by_run(*this, runs_table));
  tables += section("machine", "Machine", machine_differences(*this), small("where it differs"));

  return page_html({{"title", html_text(title_of(*this))},
                    {"began", html_text(plural(static_cast<int64_t>(runs_.size()), "run") + " over each other, by step")},
                    {"tiles", compared_tiles(*this)},
                    {"notes", notes_html(all_notes(*this, charts))},
                    {"charts", charts_html(compared_timeline_html(*this, places), charts)},
                    {"tables", tables},
                    {"data", data_json(steps_, charts, places, /*has_time=*/false)}});
}

}  // namespace gannet::report

// Fills in the page's template. Text from the file is escaped where it becomes HTML or a script's
// data.
#include <filesystem>
#include <map>

#include "base/check.h"
#include "report/charts.h"
#include "report/data.h"
#include "report/format.h"
#include "report/report.h"
#include "report/tables.h"
#include "report/timeline.h"
#include "report_files.h"  // made by embed.cmake

namespace gannet::report {
namespace {

// Replaces each {{name}} by its value, once: inserted text is not searched again.
std::string filled(std::string_view page, const std::map<std::string, std::string, std::less<>>& values) {
  std::string text;
  for (size_t at; (at = page.find("{{")) != std::string_view::npos;) {
    const size_t end = page.find("}}", at);
    const auto value = values.find(page.substr(at + 2, end - at - 2));
    GANNET_CHECK(value != values.end(), "the report's page has a place that nothing fills");
    text += page.substr(0, at);
    text += value->second;
    page.remove_prefix(end + 2);
  }
  return text += page;
}

std::string tiles_html(const Records& records) {
  std::string html;
  for (const Tile& tile : tiles_of(records))
    html += "<div><dt>" + html_text(tile.label) + "</dt><dd>" + html_text(tile.value) + "<small>" + html_text(tile.detail) +
            "</small></dd></div>\n";
  return html;
}

std::string notes_html(const std::vector<std::string>& notes) {
  std::string html;
  for (const std::string& note : notes) html += "<li>" + html_text(note) + "</li>\n";
  return html.empty() ? "" : "<ul class=\"notes\">\n" + html + "</ul>\n";
}

std::string section(const std::string& id, const std::string& title, const std::string& inside,
                    const std::string& behind_title = "") {
  if (inside.empty()) return "";
  return "<section id=\"" + id + "\"><h2>" + title + behind_title + "</h2>\n" + inside + "</section>\n";
}

std::string charts_html(const Records& records, const Charts& charts, const Buckets& places) {
  if (records.steps.empty()) return "";
  std::string html =
      "<section id=\"charts\">\n<noscript><p>The charts are drawn by the page's own script, which this browser does not run. The "
      "tables below have their numbers.</p></noscript>\n"
      "<div class=\"now\" role=\"status\"><b>step <span id=\"now-step\"></span></b><span id=\"now-when\"></span>"
      "<span id=\"now-skipped\"></span><button id=\"whole\" type=\"button\" hidden>whole run</button>"
      "<span class=\"hint\">drag to zoom, double-click to undo</span></div>\n";
  html += timeline_html(records, places);
  html += "<div class=\"grid\">\n";
  for (const Chart& chart : charts.all) html += chart_html(chart);
  return html + "</div>\n</section>\n";
}

std::string heading(const Records& records) {
  const std::filesystem::path path = std::filesystem::absolute(records.path).lexically_normal();
  const std::string folder = path.parent_path().filename().string();
  return (folder.empty() ? "" : folder + "/") + path.filename().string();
}

std::string began(const Records& records) {
  const RunRecord& run = records.runs.front();
  std::string text = run.started_at.empty() ? "" : "started " + run.started_at;
  for (const auto& [key, value] : run.machine)
    if (key == "host") text += (text.empty() ? "on " : " on ") + value;
  if (!run.gannet.empty()) text += (text.empty() ? "" : ", ") + ("Gannet " + run.gannet);
  return text;
}

}  // namespace

std::string Report::html() const {
  const Records& records = records_;
  const Buckets places = places_of(records);
  const Charts charts = charts_of(records, places);
  std::vector<std::string> notes = records.notes;
  notes.insert(notes.end(), charts.notes.begin(), charts.notes.end());
  const RunRecord& run = records.runs.back();
  const int64_t skipped = skipped_steps(records);
  const auto small = [](const std::string& text) { return " <small>" + html_text(text) + "</small>"; };

  std::string tables = section("skipped", "Skipped steps", skipped_table(records), small(with_commas(skipped)));
  tables += section("events", "Events", events_table(records));
  tables += section("runs", "Runs", runs_table(records));
  if (!records.steps.empty()) {
    tables += section("numbers", "Numbers",
                      numbers_table(charts) + "<details><summary>Some steps, evenly spaced</summary>\n" + steps_table(records) +
                          "</details>\n");
  }
  const std::string of_last = records.runs.size() > 1 ? small("of the last run") : "";
  tables += section("config", "Config", config_table(run), of_last);
  tables += section("plugins", "Plugins", plugins_table(run), of_last);
  tables += section("machine", "Machine", machine_table(run), of_last);

  return filled(kPage, {{"title", html_text(heading(records))},
                        {"library_style", kLibraryStyle},
                        {"style", kStyle},
                        {"licence", kLicence},
                        {"library", kLibrary},
                        {"script", kScript},
                        {"began", html_text(began(records))},
                        {"tiles", tiles_html(records)},
                        {"notes", notes_html(notes)},
                        {"charts", charts_html(records, charts, places)},
                        {"tables", tables},
                        {"data", data_json(records, charts, places)}});
}

}  // namespace gannet::report

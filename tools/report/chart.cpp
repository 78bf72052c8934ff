#include "report/chart.h"

#include "report/format.h"

namespace gannet::report {
namespace {

// A description for readers who cannot see the plot.
std::string description(const Chart& chart) {
  std::string text =
      chart.title + (chart.unit.empty() ? "" : " in " + chart.unit) + (chart.is_stack ? ", stacked" : "") + " by step. ";
  for (const ChartLine& line : chart.lines) {
    const Series& series = line.series;
    if (series.known == 0) continue;
    text +=
        (line.name.empty() ? "" : line.name + ": ") + number_text(series.first) + " at step " + with_commas(series.first_step);
    if (series.known > 1)
      text += ", " + number_text(series.last) + " at step " + with_commas(series.last_step) + "; smallest " +
              number_text(series.low) + ", largest " + number_text(series.high);
    text += ". ";
  }
  return text;
}

std::string caption(const Chart& chart) {
  std::string html = "<figcaption><h3>" + html_text(chart.title);
  if (!chart.unit.empty()) html += " <small>" + html_text(chart.unit) + "</small>";
  int64_t bad = 0;
  for (const ChartLine& line : chart.lines) bad += line.series.bad;
  std::string note = chart.note;
  if (bad > 0) note += (note.empty() ? "" : "; ") + ("not finite at " + plural(bad, "step") + " (×)");
  html += "</h3><span class=\"note\">" + html_text(note) + "</span><span class=\"note above\"></span>";
  if (chart.has_log) html += "<label><input type=\"checkbox\" autocomplete=\"off\">log</label>";
  html += "<span class=\"values\">";
  for (const ChartLine& line : chart.lines) {
    const std::string chip = line.name.empty() ? "" : "<i class=\"chip c" + std::to_string(line.colour) + "\"></i>";
    const std::string title = line.meaning.empty() ? "" : " title=\"" + html_text(line.meaning) + "\"";
    html += "<span" + title + ">" + chip + html_text(line.name) + " <b></b></span>";
    if (!line.smooth.empty()) html += "<span>smoothed <b></b></span>";
  }
  return html + "</span></figcaption>";
}

}  // namespace

std::string chart_html(const Chart& chart) {
  return "<figure class=\"chart" + std::string(chart.is_wide ? " wide" : "") + "\" data-chart=\"" + chart.id + "\">" +
         caption(chart) + "<div class=\"plot\" tabindex=\"0\" role=\"img\" aria-label=\"" + html_text(description(chart)) +
         "\"></div></figure>\n";
}

}  // namespace gannet::report

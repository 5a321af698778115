// The page's behaviour: sort the kernels by a column, open and close their details, copy a source, switch the theme.
"use strict";

const table = document.getElementById("kernel-table");

function sortBy(heading) {
  const column = [...heading.parentNode.children].indexOf(heading);
  const first = heading.classList.contains("name") || column === 0 ? "ascending" : "descending";
  const other = first === "ascending" ? "descending" : "ascending";
  const direction = heading.getAttribute("aria-sort") === first ? other : first;
  for (const each of heading.parentNode.children) each.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", direction);
  const value = (body) => body.rows[0].cells[column].dataset.value;
  const compare = heading.classList.contains("name")
    ? (a, b) => value(a).localeCompare(value(b))
    : (a, b) => Number(value(a)) - Number(value(b));
  const bodies = [...table.tBodies].sort(compare);
  if (direction === "descending") bodies.reverse();
  table.append(...bodies);
}

function show(body, open) {
  body.rows[1].hidden = !open;
  body.querySelector(".expand").setAttribute("aria-expanded", String(open));
}

function openTarget() {
  const body = document.getElementById(location.hash.slice(1));
  if (body && body.tagName === "TBODY") {
    show(body, true);
    body.scrollIntoView({ block: "start" });
  }
}

async function copySource(button) {
  const code = button.closest(".source").querySelector("pre");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

if (table) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sortBy(heading));
  }
  for (const body of table.tBodies) {
    body.rows[0].addEventListener("click", () => {
      if (!getSelection().toString()) show(body, body.rows[1].hidden);
    });
  }
}
for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copySource(button));

const theme = document.getElementById("theme");
const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const nameTheme = () => (theme.textContent = isDark() ? "Light" : "Dark");
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
nameTheme();
addEventListener("hashchange", openTarget);
openTarget();

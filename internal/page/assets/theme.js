// Applies the theme that was chosen before anything is drawn.
(() => {
  const chosen = localStorage.getItem("joulevirt-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
